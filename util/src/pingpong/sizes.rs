//! Which message sizes to test.

use super::options::Size;

/// Default sizes in bytes.
const USUAL: [usize; 6] = [64, 256, 1024, 4096, 65536, 1048576];

/// Returns the sizes to test, of messages up to `largest` bytes.
pub fn to_test(wanted: Size, largest: usize) -> Vec<usize> {
    let sizes = match wanted {
        Size::One(size) => vec![size],
        Size::Usual => USUAL.to_vec(),
        Size::All => {
            let powers = (1..32).flat_map(|power| [1 << power, (1 << power) + (1 << (power - 1))]);
            [0, 1].into_iter().chain(powers).collect()
        }
    };
    sizes
        .into_iter()
        .take_while(|size| *size <= largest)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sizes_are_powers_of_two_and_halves_between() {
        assert_eq!(to_test(Size::All, 12), [0, 1, 2, 3, 4, 6, 8, 12]);
    }

    #[test]
    fn sizes_stop_at_the_largest_message() {
        assert_eq!(to_test(Size::Usual, 4095), [64, 256, 1024]);
        assert!(to_test(Size::One(2000), 1500).is_empty());
    }
}
