//! How the C text is laid out: comments, and lines of at most 100 columns.

const WIDTH: usize = 100;
const TAB: usize = 8;

/// A comment, with its line end; nothing without lines.
pub fn comment(lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        [line] => format!("/* {line} */\n"),
        _ => format!("/*\n * {}\n */\n", lines.join("\n * ")),
    }
}

/// Breaks a line that is too long within its last list of parameters or arguments, and aligns
/// what follows with the first of them.
pub fn wrap_parameters(line: &str) -> String {
    if columns(line) <= WIDTH {
        return line.to_owned();
    }
    let Some((head, list)) = split_list(line) else {
        return line.to_owned();
    };
    let indent = columns(head);
    let indent = "\t".repeat(indent / TAB) + &" ".repeat(indent % TAB);
    let mut text = head.to_owned();
    let mut column = columns(head);
    for (index, part) in list.split_inclusive(", ").enumerate() {
        if index > 0 && column + part.trim_end().len() > WIDTH {
            text.truncate(text.trim_end().len());
            text.push('\n');
            text.push_str(&indent);
            column = columns(&indent);
        }
        text.push_str(part);
        column += part.len();
    }
    text
}

/// Splits a line behind the bracket that opens its last list.
fn split_list(line: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (index, c) in line.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => {
                depth -= 1;
                if depth == 0 {
                    return Some(line.split_at(index + 1));
                }
            }
            _ => {}
        }
    }
    None
}

fn columns(line: &str) -> usize {
    line.chars().fold(0, |column, c| match c {
        '\t' => (column / TAB + 1) * TAB,
        _ => column + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_parameter_list_continues_below_its_first_parameter() {
        let line = format!("int f(int {}, int b)", "a".repeat(90));
        let wrapped = wrap_parameters(&line);
        assert_eq!(
            wrapped,
            format!("int f(int {},\n      int b)", "a".repeat(90))
        );
    }

    #[test]
    fn a_short_line_stays_as_it_is() {
        assert_eq!(wrap_parameters("int f(int a);"), "int f(int a);");
    }
}
