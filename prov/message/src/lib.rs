//! What every software endpoint does with messages: parts that a provider puts
//! together with a transport of its own. They do no I/O, know no clock and take
//! no lock; they are called with facts and return what is to be done.

#![forbid(unsafe_code)]
