//! Message buffers that the provider reads and writes while an endpoint is open.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use fabric_abi::FI_ENOMEM;

use super::{Failure, Result};

/// Alignment of both buffers.
const PAGE: usize = 4096;

/// A receive and a transmit buffer in one allocation, to be registered together.
pub struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    receive: usize,
    transmit: usize,
}

impl Memory {
    /// Allocates buffers of so many bytes each.
    pub fn new(receive: usize, transmit: usize) -> Result<Memory> {
        let failed = Failure {
            call: "memory",
            code: FI_ENOMEM,
        };
        let size = receive
            .checked_next_multiple_of(PAGE)
            .and_then(|start| start.checked_add(transmit.max(1)))
            .ok_or(failed)?;
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| failed)?;
        // SAFETY: the layout has a size that is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(failed)?;
        Ok(Memory {
            base,
            layout,
            receive,
            transmit,
        })
    }

    /// Copies into the transmit buffer; excess data is cut off.
    pub fn write(&self, offset: usize, data: &[u8]) {
        let room = self.transmit.saturating_sub(offset);
        let length = data.len().min(room);
        if length > 0 {
            // SAFETY: the range is inside the transmit buffer, which the provider may read and only
            // this function writes.
            unsafe {
                let place = self.transmit_at().add(offset);
                place.copy_from_nonoverlapping(data.as_ptr(), length);
            }
        }
    }

    /// Copies from the receive buffer; the rest of `data` is unchanged.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        let there = self.receive.saturating_sub(offset);
        let length = data.len().min(there);
        if length > 0 {
            // SAFETY: the range is inside the receive buffer, whose receive has completed.
            unsafe {
                let place = self.base.as_ptr().add(offset);
                data.as_mut_ptr().copy_from_nonoverlapping(place, length);
            }
        }
    }

    pub fn receive_len(&self) -> usize {
        self.receive
    }

    pub fn transmit_len(&self) -> usize {
        self.transmit
    }

    pub(super) fn receive_at(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(super) fn transmit_at(&self) -> *mut u8 {
        // SAFETY: the offset of the transmit buffer is inside the allocation.
        unsafe { self.base.as_ptr().add(self.receive.next_multiple_of(PAGE)) }
    }

    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and is freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_beyond_the_buffers_are_cut_off() {
        let memory = Memory::new(10, 20).unwrap();
        memory.write(15, &[1; 100]);
        memory.write(50, &[1; 100]);
        let mut data = [7u8; 16];
        memory.read(4, &mut data);
        assert_eq!(data[..6], [0; 6]);
        assert_eq!(data[6..], [7; 10]);
        memory.read(11, &mut data);
    }
}
