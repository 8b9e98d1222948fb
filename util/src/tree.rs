//! The text of fi_tostr(3) for an entry of fi_getinfo(3) as a tree, for `fi_info --json`.
//!
//! Every line is a name, a colon and a value; the contents of a name without a value are indented
//! below it. Flags are between brackets.

use serde_json::{Map, Value};

/// Returns the entry as a JSON object; the line `fi_info:` around it is left out.
pub fn of_info(text: &str) -> Value {
    let mut lines = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .peekable();
    let mut top = object(&mut lines, 0);
    match top.remove("fi_info") {
        Some(info) => info,
        None => Value::Object(top),
    }
}

type Lines<'a, I> = std::iter::Peekable<I>;

fn object<'a, I: Iterator<Item = &'a str>>(
    lines: &mut Lines<'a, I>,
    indent: usize,
) -> Map<String, Value> {
    let mut object = Map::new();
    while let Some(line) = lines.next_if(|line| indent_of(line) >= indent) {
        let (name, rest) = line.trim().split_once(':').unwrap_or((line.trim(), ""));
        let inner = lines.peek().map_or(0, |next| indent_of(next));
        let value = match rest.trim() {
            "" if inner > indent_of(line) => Value::Object(self::object(lines, inner)),
            text => scalar(text),
        };
        object.insert(name.to_owned(), value);
    }
    object
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn scalar(text: &str) -> Value {
    let list = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some(list) = list {
        let words = list
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty());
        return words.map(Value::from).collect();
    }
    match text {
        "" | "(null)" | "(nil)" => Value::Null,
        _ => text
            .parse::<u64>()
            .map_or_else(|_| text.into(), Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_json_type_and_sections_nest() {
        let text = "fi_info:\n    caps: [ FI_MSG, FI_RMA ]\n    mode: [  ]\n    src_addrlen: 16\n    \
            src_addr: fi_sockaddr_in6://[::1]:0\n    fi_tx_attr:\n        size: 256\n        \
            tclass: 0x0\n    fi_fabric_attr:\n        name: (null)\n        api_version: 2.6\n    \
            nic: (nil)\n";
        let expected = serde_json::json!({
            "caps": ["FI_MSG", "FI_RMA"],
            "mode": [],
            "src_addrlen": 16,
            "src_addr": "fi_sockaddr_in6://[::1]:0",
            "fi_tx_attr": {"size": 256, "tclass": "0x0"},
            "fi_fabric_attr": {"name": null, "api_version": "2.6"},
            "nic": null,
        });
        assert_eq!(of_info(text), expected);
    }

    #[test]
    fn deeper_sections_end_where_their_lines_do() {
        let text = "fi_info:\n    nic:\n        fi_device_attr:\n            name: mlx5_0\n        \
            fi_link_attr:\n            mtu: 4096\n    last: 1\n";
        let expected = serde_json::json!({
            "nic": {"fi_device_attr": {"name": "mlx5_0"}, "fi_link_attr": {"mtu": 4096}},
            "last": 1,
        });
        assert_eq!(of_info(text), expected);
    }
}
