//! Receiving: frames of any subflow become one stream again.

use prov_base::buffer::Incoming;
use prov_base::errno::{Errno, Result};

use super::subflow::Subflow;
use super::{ACK_EVERY, Multipath};
use crate::wire::WireError;
use crate::wire::multipath::Frame;

/// The result of a step in receiving.
enum Step {
    /// So many bytes are at the destination.
    Placed(usize),
    /// There may be more.
    Further,
    Nothing,
}

impl Multipath {
    /// Receives bytes of the stream; returns their number, 0 at its end, `-FI_EAGAIN` if there are
    /// none.
    ///
    /// # Errors
    /// That of the last subflow; `-FI_EPROTO` if the peer has broken the protocol.
    pub fn receive(&mut self, to: &mut [u8]) -> Result<usize> {
        let mut memory = Incoming::default();
        memory.push(to);
        self.receive_in(memory)
    }

    /// As [`Multipath::receive`].
    ///
    /// # Errors
    /// Those of [`Multipath::receive`].
    pub fn receive_in(&mut self, mut to: Incoming<'_>) -> Result<usize> {
        let front = self.reassembly.front();
        if !front.is_empty() {
            let len = to.write_at(0, front);
            self.has_taken(len);
            return Ok(len);
        }
        if let Some(first) = self.flows.first_mut() {
            // It is read without an event.
            first.is_readable = true;
        }
        let mut to = Some(to);
        loop {
            // What is next in the stream goes to its destination; only if there is nothing of that,
            // what comes later is taken aside.
            if let Some(len) = self.receive_next(&mut to)? {
                return Ok(len);
            }
            if !self.take_aside()? || self.has_next() {
                break;
            }
            if to.is_none() {
                // The memory was offered to a socket: the next call goes on.
                return Err(Errno::EINTR);
            }
        }
        self.sweep();
        if self.has_next() {
            return match to {
                Some(mut to) if !self.reassembly.front().is_empty() => {
                    let len = to.write_at(0, self.reassembly.front());
                    self.has_taken(len);
                    Ok(len)
                }
                // The memory may have been offered to a socket already: the next call has it.
                _ => Err(Errno::EINTR),
            };
        }
        match self.flows.last().and_then(|flow| flow.end) {
            Some(end) if self.is_over() => end.map(|()| 0),
            _ => Err(Errno::EAGAIN),
        }
    }

    /// Receives what is next in the stream, if the socket of a subflow has it, or it was read already.
    fn receive_next(&mut self, to: &mut Option<Incoming<'_>>) -> Result<Option<usize>> {
        let mut index = 0;
        while index < self.flows.len() {
            match self.receive_on(index, to, false) {
                Step::Placed(len) => return Ok(Some(len)),
                Step::Further => {}
                Step::Nothing => index += 1,
            }
            self.check_fault()?;
        }
        Ok(None)
    }

    /// Takes a step with each subflow, of which the next one may have come behind what comes later.
    /// Returns whether there was anything.
    fn take_aside(&mut self) -> Result<bool> {
        let mut any = false;
        for index in 0..self.flows.len() {
            any |= matches!(self.receive_on(index, &mut None, true), Step::Further);
            self.check_fault()?;
        }
        Ok(any)
    }

    fn check_fault(&self) -> Result {
        match self.fault {
            Some(_) => Err(Errno::EPROTO),
            None => Ok(()),
        }
    }

    /// Whether something is read that is next in the stream.
    fn has_next(&self) -> bool {
        let next = self.reassembly.next();
        let mut flows = self.flows.iter();
        !self.reassembly.front().is_empty()
            || flows.any(|flow| {
                let is_next = !flow.incoming.is_empty() && flow.incoming.start <= next;
                !flow.buffered().is_empty() && (is_next || flow.has_header())
            })
    }

    /// Receives everything that has arrived, without taking it from the stream: acknowledgements are
    /// among it. What precedes the frames on the first subflow may have to wait; the frames on others
    /// do not wait for it.
    pub fn receive_aside(&mut self) {
        for index in 0..self.flows.len() {
            let flow = self.flows.get(index);
            if !self.is_in && flow.is_none_or(|flow| flow.number == 0) {
                continue;
            }
            while self.fault.is_none()
                && matches!(self.receive_on(index, &mut None, true), Step::Further)
            {}
        }
        self.sweep();
    }

    /// Returns the number of bytes that have arrived.
    pub fn waiting(&mut self) -> usize {
        self.receive_aside();
        self.reassembly.ready()
    }

    /// Notes that the caller has taken bytes of the stream.
    fn has_taken(&mut self, len: usize) {
        self.reassembly.skip(len);
        let next = self.reassembly.next();
        let is_asked = self.asked.take_if(|asked| *asked <= next).is_some();
        if is_asked || next - self.acked >= ACK_EVERY {
            self.owes_ack = true;
            self.pump();
        }
    }

    /// Removes the subflows on which nothing more arrives.
    fn sweep(&mut self) {
        let mut index = 0;
        while let Some(flow) = self.flows.get(index) {
            if let Some(end) = flow.end {
                let error = end.err().unwrap_or(Errno::ECONNRESET);
                self.stop_sending(index, error);
                if self.flows.len() > 1 {
                    self.remove(index);
                    continue;
                }
            }
            index += 1;
        }
        if !self.repeats.is_empty() {
            self.pump();
        }
    }

    /// Takes a step in processing what a subflow has received. Data that is next in the stream goes
    /// to `to`, and other data `aside`, or nowhere yet.
    fn receive_on(&mut self, index: usize, to: &mut Option<Incoming<'_>>, aside: bool) -> Step {
        let Some(flow) = self.flows.get_mut(index) else {
            return Step::Nothing;
        };
        if flow.incoming.is_empty() {
            return match flow.next_frame() {
                Some(Ok(Frame::Data { offset, len })) => {
                    self.note_fault(|this| this.reassembly.check(offset, len))
                }
                Some(Ok(Frame::Ack { offset })) => {
                    self.note_fault(|this| this.acknowledged(offset))
                }
                Some(Ok(Frame::Ask { offset })) => {
                    self.asked = Some(offset);
                    self.has_taken(0);
                    Step::Further
                }
                Some(Err(error)) => self.note_fault(|_| Err(error)),
                None => Self::fill(flow),
            };
        }
        let next = self.reassembly.next();
        let at = flow.incoming.start;
        let left = (flow.incoming.end - at) as usize;
        if at < next {
            // It was received already, and the peer does not know that.
            let known = left.min((next - at) as usize).min(flow.buffered().len());
            if known == 0 {
                return Self::fill(flow);
            }
            flow.processed(known);
            flow.incoming.start += known as u64;
            self.owes_ack |= self.acked < next;
            return Step::Further;
        }
        let buffered = flow.buffered();
        let buffered = buffered.get(..left).unwrap_or(buffered);
        if at == next {
            if !buffered.is_empty()
                && let Some(to) = to
            {
                let len = to.write_at(0, buffered);
                flow.processed(len);
                flow.incoming.start += len as u64;
                self.has_taken(len);
                return Step::Placed(len);
            }
            if buffered.is_empty()
                && flow.may_read()
                && let Some(to) = to.take()
            {
                let len = flow.receive_directly(to);
                if len != 0 {
                    self.has_taken(len);
                    return Step::Placed(len);
                }
                return Step::Nothing;
            }
        }
        if !aside {
            return Step::Nothing;
        }
        if buffered.is_empty() {
            return Self::fill(flow);
        }
        let len = buffered.len();
        let inserted = self.reassembly.insert(at, buffered);
        flow.processed(len);
        flow.incoming.start += len as u64;
        self.note_fault(|_| inserted)
    }

    fn fill(flow: &mut Subflow) -> Step {
        match flow.may_read() && flow.fill() {
            true => Step::Further,
            false => Step::Nothing,
        }
    }

    fn note_fault(
        &mut self,
        check: impl FnOnce(&mut Self) -> std::result::Result<(), WireError>,
    ) -> Step {
        match check(self) {
            Ok(()) => Step::Further,
            Err(error) => {
                self.fault = Some(error);
                Step::Nothing
            }
        }
    }

    /// Handles an acknowledgement.
    fn acknowledged(&mut self, offset: u64) -> std::result::Result<(), WireError> {
        if !self.is_out || offset > self.sent {
            return Err(WireError::Field("acknowledgement"));
        }
        self.is_confirmed = true;
        self.retained.acknowledge(offset);
        let acked = self.retained.acked();
        for flow in &mut self.flows {
            flow.acknowledged(acked);
        }
        self.repeats.retain(|range| range.end > acked);
        self.pump();
        Ok(())
    }
}
