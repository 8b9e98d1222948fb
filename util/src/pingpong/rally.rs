//! Exchange of messages.

use std::time::Instant;

use fabric_abi::FI_EAGAIN;

use super::outcome::{Latencies, Outcome, Pattern};
use super::patience::Patience;
use super::pattern::Patterns;
use super::session::Session;
use super::{Options, Problem};
use crate::fabric::{self, Failure, Queue};

/// The last message of both sides.
const LAST: &[u8] = b"fin\0";

/// The progress of one side's test.
pub struct Rally<'a> {
    options: &'a Options,
    /// Number of completions read so far, by direction.
    completed: [u64; 2],
    /// Number of completions that were or are waited for.
    awaited: [u64; 2],
    /// Number of messages received in the test of one size.
    received: u64,
    sent_patterns: Patterns,
    received_patterns: Patterns,
}

impl<'a> Rally<'a> {
    /// Creates the state for a session whose first receive is posted.
    pub fn new(options: &'a Options) -> Rally<'a> {
        Rally {
            options,
            completed: [0; 2],
            awaited: [0; 2],
            received: 0,
            sent_patterns: Patterns::default(),
            received_patterns: Patterns::default(),
        }
    }

    /// Runs all iterations with messages of one size.
    pub fn play(&mut self, session: &Session, size: usize) -> Result<Outcome, Problem> {
        self.received = 0;
        session.control.synchronise()?;
        debug!(self.options, "messages of {size} bytes");
        // The clock is read for each round trip only if the options need it.
        let mut round_trips = Vec::new();
        let is_timed = self.options.wants_latencies();
        let start = Instant::now();
        let mut last = start;
        for _ in 0..self.options.iterations {
            if self.options.is_server() {
                self.receive(session, size)?;
                self.send(session, size)?;
            } else {
                self.send(session, size)?;
                self.receive(session, size)?;
            }
            if is_timed {
                let now = Instant::now();
                round_trips.push(now - last);
                last = now;
            }
        }
        let elapsed = start.elapsed();
        let acknowledged = session.control.agree_on_count(self.received)?;
        Ok(Outcome {
            pattern: Pattern::BackAndForth,
            size,
            sent: u64::from(self.options.iterations),
            acknowledged,
            elapsed,
            latencies: Latencies::new(round_trips),
        })
    }

    /// Sends a stream of messages of one size: from the client to the server, or both ways at the
    /// same time. One receive is posted before and after.
    pub fn stream(
        &mut self,
        session: &Session,
        size: usize,
        pattern: Pattern,
    ) -> Result<Outcome, Problem> {
        let count = u64::from(self.options.iterations);
        let is_both = pattern == Pattern::BothWays;
        let to_send = if is_both || !self.options.is_server() {
            count
        } else {
            0
        };
        let to_receive = if is_both || self.options.is_server() {
            count
        } else {
            0
        };
        let window = session.window();
        // One receive is posted already, and remains.
        let mut posted = 0;
        while posted < to_receive.min(window - 1) {
            self.retry(session, || session.endpoint.post_receive())?;
            posted += 1;
        }
        session.control.synchronise()?;
        debug!(
            self.options,
            "stream of messages of {size} bytes, {pattern:?}"
        );
        let length = size + session.prefix;
        let is_injected = size < session.inject_below;
        let [sends_before, receives_before] = self.completed;
        let start = Instant::now();
        let mut sent = 0;
        let mut patience = Patience::default();
        loop {
            let arrived = self.completed[Queue::Receive as usize] - receives_before;
            let left = self.completed[Queue::Transmit as usize] - sends_before;
            while posted < to_receive && posted < arrived + window - 1 {
                match session.endpoint.post_receive() {
                    Err(failure) if failure.code == FI_EAGAIN => break,
                    done => done?,
                }
                posted += 1;
            }
            while sent < to_send && (is_injected || sent - left < window) {
                let done = match is_injected {
                    true => session.endpoint.inject(length, session.peer),
                    false => session.endpoint.send(length, session.peer),
                };
                match done {
                    Err(failure) if failure.code == FI_EAGAIN => break,
                    done => done?,
                }
                sent += 1;
            }
            let in_flight = if is_injected { 0 } else { sent - left };
            if arrived == to_receive && sent == to_send && in_flight == 0 {
                break;
            }
            for queue in [Queue::Transmit, Queue::Receive] {
                self.poll(session, queue)?;
            }
            patience.wear(&session.control)?;
        }
        for (awaited, completed) in self.awaited.iter_mut().zip(self.completed) {
            *awaited = completed;
        }
        // Returns when the other side has finished as well.
        let acknowledged = session.control.agree_on_count(count)?;
        Ok(Outcome {
            pattern,
            size,
            sent: count,
            acknowledged,
            elapsed: start.elapsed(),
            latencies: Latencies::default(),
        })
    }

    /// Ends the test: returns when the last messages of both sides have arrived.
    pub fn finish(&mut self, session: &Session) -> Result<(), Problem> {
        session.endpoint.memory().write(session.prefix, LAST);
        let length = LAST.len() + session.prefix;
        self.retry(session, || {
            session.endpoint.send_to_completion(length, session.peer)
        })?;
        self.wait(session, Queue::Transmit)?;
        self.wait(session, Queue::Receive)?;
        debug!(self.options, "finished");
        Ok(())
    }

    fn send(&mut self, session: &Session, size: usize) -> Result<(), Problem> {
        let endpoint = &session.endpoint;
        if self.options.verify {
            endpoint
                .memory()
                .write(session.prefix, &self.sent_patterns.next(size));
        }
        let length = size + session.prefix;
        if size < session.inject_below {
            return self.retry(session, || endpoint.inject(length, session.peer));
        }
        self.retry(session, || endpoint.send(length, session.peer))?;
        self.wait(session, Queue::Transmit)
    }

    /// Waits for a message, checks it and posts the next receive.
    fn receive(&mut self, session: &Session, size: usize) -> Result<(), Problem> {
        self.wait(session, Queue::Receive)?;
        if self.options.verify {
            self.check(session, size)?;
        }
        self.retry(session, || session.endpoint.post_receive())?;
        self.received += 1;
        Ok(())
    }

    fn check(&mut self, session: &Session, size: usize) -> Result<(), Problem> {
        let expected = self.received_patterns.next(size);
        let mut data = vec![0; size];
        session.endpoint.memory().read(session.prefix, &mut data);
        match data
            .iter()
            .zip(&expected)
            .position(|(is, should)| is != should)
        {
            None => Ok(()),
            Some(byte) => {
                let message = self.received_patterns.count();
                Err(Problem::Corrupt {
                    message,
                    size,
                    byte,
                })
            }
        }
    }

    /// Waits for one more completion.
    fn wait(&mut self, session: &Session, queue: Queue) -> Result<(), Problem> {
        self.awaited[queue as usize] += 1;
        let mut patience = Patience::default();
        while self.completed[queue as usize] < self.awaited[queue as usize] {
            self.poll(session, queue)?;
            patience.wear(&session.control)?;
        }
        Ok(())
    }

    /// Repeats the call as long as resources are missing, and makes progress in between.
    fn retry(
        &mut self,
        session: &Session,
        operation: impl Fn() -> fabric::Result<()>,
    ) -> Result<(), Problem> {
        let mut patience = Patience::default();
        loop {
            match operation() {
                Err(Failure {
                    code: FI_EAGAIN, ..
                }) => {}
                done => return Ok(done?),
            }
            for queue in [Queue::Transmit, Queue::Receive] {
                self.poll(session, queue)?;
            }
            patience.wear(&session.control)?;
        }
    }

    fn poll(&mut self, session: &Session, queue: Queue) -> fabric::Result<()> {
        if session.endpoint.poll(queue)? {
            self.completed[queue as usize] += 1;
        }
        Ok(())
    }
}
