//! The memory of an operation: the application's, and scratch memory of its own.

use prov_base::atomic_ops::{Datatype, Op, combine};
use prov_base::buffer::{AppIov, Iov};
use prov_base::errno::Result;

use crate::program::{Memory, Pieces, Span};
use crate::scratch::Scratch;

/// Number of bytes that are combined in one step: both operands stay in the processor's first-level
/// cache, and hold whole elements of any datatype.
const CHUNK: usize = 4096;

/// Where the input or the output is.
enum Place {
    /// The application's memory.
    App(AppIov),
    /// A copy in the scratch memory, which begins at this byte.
    Copied(usize),
}

/// All memory of an operation, counted in elements.
pub struct Memories {
    /// Bytes of an element.
    size: usize,
    input: Place,
    output: Place,
    scratch: Scratch,
    /// The application's memory to which the result is copied at the end, if `output` is a copy.
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
        let input = match copied_input {
            0 => Place::App(input),
            len => {
                input.copy_to(&scratch.memory().slice(own, len));
                Place::Copied(own)
            }
        };
        let (output, result) = match copied_output {
            0 => (Place::App(output), None),
            len => {
                let start = own + copied_input;
                output.copy_to(&scratch.memory().slice(start, len));
                (Place::Copied(start), Some(output))
            }
        };
        Ok(Memories {
            size,
            input,
            output,
            scratch,
            result,
        })
    }

    /// Copies the result to the application's memory when the operation is complete.
    pub fn finish(&self) {
        if let (Some(result), Place::Copied(start)) = (&self.result, &self.output) {
            let memory = self.scratch.memory();
            memory.slice(*start, result.len()).copy_to(result);
        }
    }

    fn place(&self, memory: Memory) -> &Place {
        match memory {
            Memory::Input => &self.input,
            Memory::Output => &self.output,
            Memory::Scratch => &Place::Copied(0),
        }
    }

    /// Calls `work` with the memory of a span.
    fn span<R>(&self, span: Span, work: impl FnOnce(&Iov<'_>) -> R) -> R {
        let (start, len) = (span.start * self.size, span.len * self.size);
        match self.place(span.memory) {
            Place::App(memory) => work(&memory.slice(start, len)),
            Place::Copied(from) => work(&self.scratch.memory().slice(from + start, len)),
        }
    }

    /// Returns the memory of a message.
    ///
    /// # Safety
    /// This value, and the operation, end only after the last use of the result.
    #[allow(unsafe_code)]
    pub unsafe fn lend(&self, pieces: &Pieces) -> AppIov {
        let [first, second] = pieces.map(|span| {
            let (start, len) = (span.start * self.size, span.len * self.size);
            match self.place(span.memory) {
                // SAFETY: the caller keeps this value, and so the loan.
                Place::App(memory) => unsafe { memory.duplicate() }.into_slice(start, len),
                // SAFETY: the caller keeps this value, and so the block.
                Place::Copied(from) => unsafe { self.scratch.lend(from + start, len) },
            }
        });
        // Both spans are in one segment each.
        first.followed_by(second).unwrap_or_default()
    }

    /// Copies elements.
    pub fn copy(&self, from: Span, to: Span) {
        self.span(from, |from| {
            self.span(to, |to| {
                // The application may use the same memory for the result and the input.
                if from.address() != to.address() {
                    from.copy_to(to);
                }
            });
        });
    }

    /// Combines the elements of `with` into those of `into`.
    ///
    /// # Errors
    /// `-FI_EOPNOTSUPP` for a datatype for which the operation is not defined.
    pub fn combine(&self, op: Op, datatype: Datatype, into: Span, with: Span) -> Result {
        self.span(into, |into| {
            self.span(with, |with| combine_parts(op, datatype, into, with))
        })
    }
}

/// Combines the elements of `with` into those of `into`.
#[allow(
    clippy::indexing_slicing,
    reason = "no part has more bytes than a chunk"
)]
fn combine_parts(op: Op, datatype: Datatype, into: &Iov<'_>, with: &Iov<'_>) -> Result {
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

#[cfg(test)]
mod tests {
    use prov_base::errno::Errno;

    use super::*;

    /// The memory of a `Vec` in several segments.
    #[allow(unsafe_code)]
    fn in_segments(bytes: &mut [u8]) -> AppIov {
        let base = bytes.as_mut_ptr();
        let (half, rest) = (bytes.len() / 2, bytes.len() - bytes.len() / 2);
        // SAFETY: both segments are in the slice, which outlives the memory of the tests.
        unsafe {
            let (first, second) = (
                AppIov::from_raw(base, half),
                AppIov::from_raw(base.add(half), rest),
            );
            first.followed_by(second).unwrap()
        }
    }

    #[test]
    fn memory_in_segments_is_copied_and_the_result_copied_back() {
        let (mut input, mut output) = (vec![7; 9], vec![0; 9]);
        let memory =
            Memories::new(1, in_segments(&mut input), in_segments(&mut output), 3).unwrap();
        let all = |memory| Span::new(memory, 0, 9);
        memory.copy(all(Memory::Input), all(Memory::Output));
        memory.finish();
        drop(memory);
        assert_eq!(output, [7; 9]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no allocation is refused by miri")]
    fn memory_that_there_is_not_is_an_error() {
        for (size, elements) in [(1, isize::MAX as usize), (32, usize::MAX / 16)] {
            let memory = Memories::new(size, AppIov::EMPTY, AppIov::EMPTY, elements);
            assert_eq!(memory.err(), Some(Errno::ENOMEM));
        }
    }
}
