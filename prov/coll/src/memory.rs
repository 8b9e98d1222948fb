//! The memory of an operation: the application's, and scratch memory of its own.

use prov_base::atomic_ops::{Datatype, Op, combine};
use prov_base::buffer::AppIov;
use prov_base::errno::Result;

use crate::program::{Memory, Pieces, Span};
use crate::scratch::Scratch;

/// Number of bytes that are combined in one step: both operands stay in the processor's first-level
/// cache, and hold whole elements of any datatype.
const CHUNK: usize = 4096;

/// All memory of an operation, counted in elements.
pub struct Memories {
    /// Bytes of an element.
    size: usize,
    input: AppIov,
    output: AppIov,
    scratch: Scratch,
    /// The result, which is copied to the application's memory at the end, if `output` is not that
    /// memory.
    result: Option<AppIov>,
}

impl Memories {
    /// Combines the application's memory with `scratch` elements of the operation's own. Memory in
    /// several segments is copied: a message has two spans, and its I/O vector only a few segments.
    ///
    /// # Errors
    /// `-FI_ENOMEM` if there is not so much memory.
    pub fn new(size: usize, input: AppIov, output: AppIov, scratch: usize) -> Result<Self> {
        let copied = |memory: &AppIov| match memory.single().is_some() || memory.is_empty() {
            true => 0,
            false => memory.len(),
        };
        let own = scratch.saturating_mul(size);
        let (copied_input, copied_output) = (copied(&input), copied(&output));
        let copied = copied_input.saturating_add(copied_output);
        let scratch = Scratch::new(own.saturating_add(copied))?;
        let mut this = Memories {
            size,
            input,
            output,
            scratch,
            result: None,
        };
        if copied_input != 0 {
            let copy = this.scratch.lend().slice(own, copied_input);
            input.copy_to(&copy);
            this.input = copy;
        }
        if copied_output != 0 {
            let copy = this.scratch.lend().slice(own + copied_input, copied_output);
            output.copy_to(&copy);
            this.output = copy;
            this.result = Some(output);
        }
        Ok(this)
    }

    /// Copies the result to the application's memory when the operation is complete.
    pub fn finish(&self) {
        if let Some(result) = &self.result {
            self.output.copy_to(result);
        }
    }

    fn span(&self, span: Span) -> AppIov {
        let memory = match span.memory {
            Memory::Input => self.input,
            Memory::Output => self.output,
            Memory::Scratch => self.scratch.lend(),
        };
        memory.slice(span.start * self.size, span.len * self.size)
    }

    /// The memory of a message.
    pub fn pieces(&self, pieces: &Pieces) -> AppIov {
        let [first, second] = *pieces;
        let first = self.span(first);
        // Both spans are in one segment each.
        let both = first.followed_by(&self.span(second));
        both.unwrap_or(first)
    }

    /// Copies elements.
    pub fn copy(&self, from: Span, to: Span) {
        let (from, to) = (self.span(from), self.span(to));
        // The application may use the same memory for the result and the input.
        if from.address() != to.address() {
            from.copy_to(&to);
        }
    }

    /// Combines the elements of `with` into those of `into`.
    ///
    /// # Errors
    /// `-FI_EOPNOTSUPP` for a datatype for which the operation is not defined.
    #[allow(
        clippy::indexing_slicing,
        reason = "no part has more bytes than a chunk"
    )]
    pub fn combine(&self, op: Op, datatype: Datatype, into: Span, with: Span) -> Result {
        let (into, with) = (self.span(into), self.span(with));
        let mut target = [0; CHUNK];
        let mut operand = [0; CHUNK];
        for at in (0..into.len()).step_by(CHUNK) {
            let len = CHUNK.min(into.len() - at);
            let (target, operand) = (&mut target[..len], &mut operand[..len]);
            into.read_at(at, target);
            with.read_at(at, operand);
            combine(op, datatype, target, operand)?;
            into.write_at(at, target);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prov_base::errno::Errno;

    use super::*;

    #[test]
    fn memory_that_there_is_not_is_an_error() {
        for (size, elements) in [(1, isize::MAX as usize), (32, usize::MAX / 16)] {
            let memory = Memories::new(size, AppIov::EMPTY, AppIov::EMPTY, elements);
            assert_eq!(memory.err(), Some(Errno::ENOMEM));
        }
    }
}
