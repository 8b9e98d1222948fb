//! Messages back and forth.

use std::time::Instant;

use fabric_abi::FI_EAGAIN;

use super::patience::Patience;
use super::pattern::Patterns;
use super::session::Session;
use super::{Options, Problem, report};
use crate::fabric::{self, Failure, Queue};

/// The last message of both sides.
const LAST: &[u8] = b"fin\0";

/// Progress of one side's test.
pub struct Rally<'a> {
    options: &'a Options,
    /// Completions read so far, by direction.
    completed: [u64; 2],
    /// Completions that were waited for, or are.
    awaited: [u64; 2],
    /// Messages received in the test of one size.
    received: u64,
    sent_patterns: Patterns,
    received_patterns: Patterns,
    head_printed: bool,
}

impl<'a> Rally<'a> {
    /// For a session that has its first receive posted.
    pub fn new(options: &'a Options) -> Rally<'a> {
        Rally {
            options,
            completed: [0; 2],
            awaited: [0; 2],
            received: 0,
            sent_patterns: Patterns::default(),
            received_patterns: Patterns::default(),
            head_printed: false,
        }
    }

    /// All iterations with messages of one size, and the line about them.
    pub fn play(&mut self, session: &Session, size: usize) -> Result<(), Problem> {
        self.received = 0;
        session.control.synchronise()?;
        debug!(self.options, "messages of {size} bytes");
        let start = Instant::now();
        for _ in 0..self.options.iterations {
            if self.options.is_server() {
                self.receive(session, size)?;
                self.send(session, size)?;
            } else {
                self.send(session, size)?;
                self.receive(session, size)?;
            }
        }
        let elapsed = start.elapsed();
        let acknowledged = session.control.agree_on_count(self.received)?;
        if self.options.iterations > 0 {
            if !self.head_printed {
                println!("{}", report::HEAD);
                self.head_printed = true;
            }
            let sent = u64::from(self.options.iterations);
            println!("{}", report::line(size, sent, acknowledged, elapsed));
        }
        Ok(())
    }

    /// Says farewell: returns when the last messages of both sides have arrived.
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

    /// Calls again for as long as resources are missing, and makes progress between.
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
