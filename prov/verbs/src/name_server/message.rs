//! The messages to and from name servers: a head of 8 bytes, a service of 4 in the host's byte
//! order, a name of 32.

/// Number of bytes of a head: version, command, two unused bytes, status.
pub const HEAD: usize = 8;
/// Number of bytes of a service.
pub const SERVICE: usize = 4;
/// Number of bytes of a name.
const NAME: usize = 32;
/// Number of bytes after the head of a positive answer.
pub const FOUND: usize = SERVICE + NAME;

const VERSION: u8 = 0;
const ADD: u8 = 0;
const REMOVE: u8 = 1;
const ASK: u8 = 2;
const ANSWER: u8 = 3;

/// The service of callers that accept any.
const ANY: i32 = 0;

/// Largest number of names of one server: a bound of memory.
const MOST: usize = 1 << 16;

/// The command of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// An endpoint exists.
    Add,
    /// An endpoint is gone.
    Remove,
    /// Returns the endpoint of a service.
    Ask,
}

/// A message to a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The command.
    pub command: Command,
    /// The service.
    pub service: i32,
    /// The name of the endpoint; unused in a question for it.
    pub name: [u8; NAME],
}

impl Question {
    fn command(head: &[u8; HEAD]) -> Option<Command> {
        match head {
            [VERSION, ADD, ..] => Some(Command::Add),
            [VERSION, REMOVE, ..] => Some(Command::Remove),
            [VERSION, ASK, ..] => Some(Command::Ask),
            _ => None,
        }
    }

    /// Returns the number of bytes after a head; `None` for an invalid one.
    pub fn rest(head: &[u8; HEAD]) -> Option<usize> {
        Some(match Self::command(head)? {
            Command::Add | Command::Remove => SERVICE + NAME,
            Command::Ask => SERVICE,
        })
    }

    /// Decodes a head and the bytes after it.
    pub fn decode(head: &[u8; HEAD], rest: &[u8]) -> Option<Self> {
        let command = Self::command(head)?;
        let (service, name) = rest.split_first_chunk::<SERVICE>()?;
        Some(Question {
            command,
            service: i32::from_ne_bytes(*service),
            name: match command {
                Command::Ask => [0; NAME],
                Command::Add | Command::Remove => *name.first_chunk()?,
            },
        })
    }

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let command = match self.command {
            Command::Add => ADD,
            Command::Remove => REMOVE,
            Command::Ask => ASK,
        };
        let mut bytes = vec![VERSION, command, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&self.service.to_ne_bytes());
        if self.command != Command::Ask {
            bytes.extend_from_slice(&self.name);
        }
        bytes
    }
}

/// The answer of a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer(Option<(i32, [u8; NAME])>);

impl Answer {
    /// Encodes the answer.
    pub fn encode(&self) -> Vec<u8> {
        let Some((service, name)) = &self.0 else {
            let unknown = (-libc::ENODATA).to_be_bytes();
            return [&[VERSION, ANSWER, 0, 0], &unknown[..]].concat();
        };
        let head = [VERSION, ANSWER, 0, 0, 0, 0, 0, 0];
        [&head[..], &service.to_ne_bytes(), name].concat()
    }

    /// Whether a head announces a name.
    pub fn is_known(head: &[u8; HEAD]) -> bool {
        head[..2] == [VERSION, ANSWER] && head[4..] == [0; 4]
    }
}

/// The names that a name server knows.
#[derive(Default)]
pub struct Names(Vec<(i32, [u8; NAME])>);

impl Names {
    /// Executes a command; only callers of this host can change the names.
    pub fn ask(&mut self, question: &Question, is_local: bool) -> Option<Answer> {
        let entry = (question.service, question.name);
        match question.command {
            Command::Add if is_local && self.0.len() < MOST => self.0.push(entry),
            Command::Remove if is_local => self.0.retain(|known| *known != entry),
            Command::Add | Command::Remove => {}
            Command::Ask => {
                let is_it = |(known, _): &&(i32, _)| {
                    [ANY, *known].contains(&question.service) || *known == ANY
                };
                // The name that was added last: the endpoints of earlier ones may have ended.
                return Some(Answer(self.0.iter().rev().find(is_it).copied()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_survive_their_bytes() {
        for command in [Command::Add, Command::Remove, Command::Ask] {
            let name = if command == Command::Ask {
                [0; NAME]
            } else {
                [7; NAME]
            };
            let question = Question {
                command,
                service: -5,
                name,
            };
            let bytes = question.encode();
            let (head, rest) = bytes.split_first_chunk().unwrap();
            assert_eq!(Question::rest(head), Some(rest.len()));
            assert_eq!(Question::decode(head, rest), Some(question));
            assert_eq!(Question::decode(head, &rest[1..]), None);
        }
        assert_eq!(Question::rest(&[1, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Question::rest(&[0, ANSWER, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn strangers_change_nothing() {
        let mut names = Names::default();
        let question = |command| Question {
            command,
            service: 3,
            name: [1; NAME],
        };
        assert_eq!(names.ask(&question(Command::Add), false), None);
        assert_eq!(names.ask(&question(Command::Ask), true), Some(Answer(None)));
        names.ask(&question(Command::Add), true);
        names.ask(&question(Command::Remove), false);
        let found = names.ask(&question(Command::Ask), false).unwrap();
        let bytes = found.encode();
        assert!(Answer::is_known(bytes.first_chunk().unwrap()));
        assert_eq!(bytes[HEAD + SERVICE..], [1; NAME]);
        assert!(!Answer::is_known(
            Answer(None).encode().first_chunk().unwrap()
        ));
    }
}
