//! fi_strerror(1): the text for an error number.

use std::env;
use std::ffi::c_int;
use std::process::ExitCode;

use fabric_tools::fabric::strerror;

fn main() -> ExitCode {
    let mut arguments = env::args();
    let program = arguments.next().unwrap_or_default();
    let (Some(number), None) = (arguments.next(), arguments.next()) else {
        print_usage(&program);
        return ExitCode::FAILURE;
    };
    if number == "-h" {
        print_usage(&program);
        return ExitCode::SUCCESS;
    }
    let Some(code) = parse(&number) else {
        println!("ERROR: unable to parse '{number}'\n");
        print_usage(&program);
        return ExitCode::FAILURE;
    };
    let Some(code) = magnitude(code) else {
        println!("ERROR: '{number}' is out of range\n");
        print_usage(&program);
        return ExitCode::FAILURE;
    };
    println!("{}", strerror(code));
    ExitCode::SUCCESS
}

fn print_usage(program: &str) {
    println!("Usage: {program} FI_ERROR_CODE");
    println!();
    println!("Prints what the error number means. It may be negative, as calls return it, and");
    println!("decimal, hexadecimal (0x10b) or octal (0413).");
}

/// A C integer constant with an optional sign.
fn parse(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) =
        if let Some(digits) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
            (digits, 16)
        } else if digits.len() > 1 && digits.starts_with('0') {
            (&digits[1..], 8)
        } else {
            (digits, 10)
        };
    // A second sign would pass from_str_radix.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let value = i64::from_str_radix(digits, radix).ok()?;
    Some(if negative { -value } else { value })
}

/// The absolute value, within the range of a C int.
fn magnitude(value: i64) -> Option<c_int> {
    c_int::try_from(value.checked_abs()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_every_c_notation() {
        assert_eq!(parse("22"), Some(22));
        assert_eq!(parse("-259"), Some(-259));
        assert_eq!(parse("0x103"), Some(259));
        assert_eq!(parse("0413"), Some(267));
        assert_eq!(parse("0"), Some(0));
    }

    #[test]
    fn arguments_that_are_not_numbers_are_refused() {
        for text in ["", "-", "x", "12a", "0x", "--1", "0x-1", "09"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_outside_an_int_are_refused() {
        assert_eq!(magnitude(-11), Some(11));
        assert_eq!(magnitude(1 << 31), None);
        assert_eq!(magnitude(i64::MIN), None);
    }
}
