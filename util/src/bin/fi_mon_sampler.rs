//! fi_mon_sampler(1): reads the counters of the monitor hook (fi_hook(7)) while applications run.

use std::collections::BTreeMap;
use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Arg, Command};
use fabric_abi::monitor::{COLUMNS, COUNTERS, FINISHED, REQUESTED, ROWS, SIZE};
use fabric_tools::arguments::{self, Request};

fn main() -> ExitCode {
    let mut words = env::args();
    let program = words.next().unwrap_or_default();
    let options = match arguments::read(command(), words) {
        Request::Run(matches) => match Options::from_matches(&matches) {
            Ok(Some(options)) => options,
            Ok(None) => {
                eprintln!("No target path specified!");
                print_usage(&program);
                return ExitCode::SUCCESS;
            }
            Err(problem) => {
                eprintln!("{problem}");
                print_usage(&program);
                return ExitCode::FAILURE;
            }
        },
        Request::Usage(_) => {
            print_usage(&program);
            return ExitCode::FAILURE;
        }
    };
    match options.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let option = |name: &'static str| Arg::new(name).short(name.chars().next());
    arguments::like_getopt(Command::new("fi_mon_sampler"))
        .arg(option("h").action(clap::ArgAction::SetTrue))
        .arg(option("w"))
        .arg(option("f"))
        .arg(option("o"))
        .arg(Arg::new("target"))
}

fn print_usage(program: &str) {
    eprintln!("Usage: {program} [-w MSEC] [-f FORMAT] [-o FOLDER] TARGET");
    eprintln!();
    eprintln!("Samples the counters in a file of the monitor hook, or in all files of a folder.");
    eprintln!(" -w MSEC    sample again and again, every so many milliseconds");
    eprintln!(" -f FORMAT  format of the samples: csv");
    eprintln!(
        " -o FOLDER  folder of the samples, one file for each file of counters; for a single"
    );
    eprintln!("            file, the standard output is the default");
}

/// The request of the command line.
struct Options {
    /// Time between samples, if there is to be more than one.
    every: Option<Duration>,
    output: Option<PathBuf>,
    target: PathBuf,
}

impl Options {
    /// `None` without a target.
    fn from_matches(matches: &clap::ArgMatches) -> Result<Option<Options>, String> {
        let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
        if matches.get_flag("h") {
            return Err("Sampler for the monitor hook".to_owned());
        }
        let every = match text("w") {
            Some(text) => {
                let milliseconds: u64 = text
                    .parse()
                    .map_err(|_| format!("Invalid watch time '{text}'"))?;
                (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
            }
            None => None,
        };
        if let Some(format) = text("f")
            && !format.eq_ignore_ascii_case("csv")
        {
            return Err(format!("Invalid format '{format}'"));
        }
        Ok(text("target").map(|target| Options {
            every,
            output: text("o").map(PathBuf::from),
            target: PathBuf::from(target),
        }))
    }

    fn run(&self) -> Result<(), String> {
        let target = self.target.display();
        let found = std::fs::metadata(&self.target)
            .map_err(|error| format!("Could not stat {target}: {error}"))?;
        if found.is_dir() && self.output.is_none() {
            return Err("Target is a directory, cannot use stdout as output!".to_owned());
        }
        let mut sources = BTreeMap::new();
        loop {
            self.find(found.is_dir(), &mut sources)?;
            sources.retain(|path, source: &mut Source| {
                let goes_on = source.sample().unwrap_or_else(|error| {
                    eprintln!("Could not sample {}: {error}", path.display());
                    false
                });
                if !goes_on {
                    eprintln!("Closed {}", path.display());
                }
                goes_on
            });
            let is_over = sources.is_empty() && !found.is_dir();
            match self.every {
                Some(every) if !is_over => thread::sleep(every),
                _ => return Ok(()),
            }
        }
    }

    /// Opens the files of counters that are not open yet.
    fn find(&self, is_folder: bool, sources: &mut BTreeMap<PathBuf, Source>) -> Result<(), String> {
        if !is_folder {
            if sources.is_empty() {
                let source = self.open(&self.target, 0)?;
                sources.insert(self.target.clone(), source);
            }
            return Ok(());
        }
        let target = self.target.display();
        let failed = |error| format!("Could not open directory {target}: {error}");
        for entry in std::fs::read_dir(&self.target).map_err(failed)? {
            let Ok(entry) = entry else { continue };
            let path = entry.path();
            let is_file = entry.file_type().is_ok_and(|type_| type_.is_file());
            if !is_file || sources.contains_key(&path) {
                continue;
            }
            // Another user's folder is not trusted: the file may be a link to one of this user by now.
            match self.open(&path, libc::O_NOFOLLOW) {
                Ok(source) => {
                    sources.insert(path, source);
                }
                // The file may be another user's, or be removed meanwhile.
                Err(problem) => eprintln!("{problem}"),
            }
        }
        Ok(())
    }

    /// Opens a file of counters, with these flags of open(2).
    fn open(&self, path: &Path, flags: i32) -> Result<Source, String> {
        let failed = |error| format!("Could not open {}: {error}", path.display());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)
            .map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        if len < (SIZE as u64) {
            return Err(format!("{} is no file of counters", path.display()));
        }
        let (output, has_header): (Box<dyn Write>, bool) = match &self.output {
            None => (Box::new(io::stdout()), false),
            Some(folder) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let output = folder.join(format!("{name}.csv"));
                let failed = |error| format!("Could not open {}: {error}", output.display());
                let file = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(&output)
                    .map_err(failed)?;
                let has_header = file.metadata().map_err(failed)?.len() > 0;
                eprintln!("Writing sampled data to {}", output.display());
                (Box::new(file), has_header)
            }
        };
        Ok(Source {
            path: path.to_owned(),
            file,
            output,
            has_header,
        })
    }
}

/// A file of counters, and where its samples go.
struct Source {
    path: PathBuf,
    file: File,
    output: Box<dyn Write>,
    has_header: bool,
}

impl Source {
    /// Writes a sample if the application has provided one since the last, and requests the next.
    /// Returns whether there may be more.
    fn sample(&mut self) -> io::Result<bool> {
        // The contents of a file that is removed after this are read from the open file.
        let exists = self.path.exists();
        let flags = self.flags()?;
        if flags & REQUESTED != 0 {
            return Ok(exists);
        }
        let mut counters = [0; COUNTERS];
        self.file.read_exact_at(&mut counters, 0)?;
        // The text is written with one call, so that a sampler that is interrupted leaves complete
        // lines.
        let mut text = String::new();
        if !self.has_header {
            text += &header();
            self.has_header = true;
        }
        text += &row(&counters);
        self.output.write_all(text.as_bytes())?;
        self.output.flush()?;
        self.file
            .write_all_at(&[self.flags()? | REQUESTED], COUNTERS as u64)?;
        if flags & FINISHED != 0 {
            let _ = std::fs::remove_file(&self.path);
            return Ok(false);
        }
        Ok(exists)
    }

    fn flags(&self) -> io::Result<u8> {
        let mut flags = [0];
        self.file.read_exact_at(&mut flags, COUNTERS as u64)?;
        let [flags] = flags;
        Ok(flags)
    }
}

/// Returns the names of the columns: a count and a sum of each range of sizes of each function.
fn header() -> String {
    let mut names = Vec::new();
    for row in ROWS {
        for column in COLUMNS {
            names.push(format!("mon_{row}_{column}_c,mon_{row}_{column}_s"));
        }
    }
    names.join(",") + "\n"
}

/// Returns the numbers in the order of the header.
fn row(counters: &[u8; COUNTERS]) -> String {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let numbers: Vec<u64> = counters.chunks_exact(8).map(number).collect();
    let mut cells = Vec::new();
    for row in numbers.chunks_exact(COLUMNS.len() * 2) {
        let (counts, sums) = row.split_at(COLUMNS.len());
        for (count, sum) in counts.iter().zip(sums) {
            cells.push(format!("{count},{sum}"));
        }
    }
    cells.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_have_the_names_and_the_order_of_the_c_tool() {
        let header = header();
        let names: Vec<&str> = header.trim().split(',').collect();
        assert_eq!(names.len(), ROWS.len() * COLUMNS.len() * 2);
        assert_eq!(
            names[..4],
            [
                "mon_recv_0_64_c",
                "mon_recv_0_64_s",
                "mon_recv_64_512_c",
                "mon_recv_64_512_s"
            ]
        );
        assert_eq!(names.last(), Some(&"mon_cq_tagged_rx_4M_UP_s"));
    }

    #[test]
    fn a_link_is_sampled_only_if_the_user_names_it() {
        let name = format!("mon-sampler-{}", std::process::id());
        let folder = env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::fs::write(&file, vec![0; SIZE]).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let options = Options {
            every: None,
            output: None,
            target: folder.clone(),
        };
        assert!(options.open(&link, 0).is_ok());
        assert!(options.open(&link, libc::O_NOFOLLOW).is_err());
        assert!(options.open(&file, libc::O_NOFOLLOW).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_count_is_followed_by_its_sum() {
        let mut counters = [0; COUNTERS];
        // The second row: count and sum of its third column.
        let base = COLUMNS.len() * 2 * 8;
        counters[base + 2 * 8..][..8].copy_from_slice(&7u64.to_ne_bytes());
        counters[base + (COLUMNS.len() + 2) * 8..][..8].copy_from_slice(&700u64.to_ne_bytes());
        let row = row(&counters);
        let cells: Vec<&str> = row.trim().split(',').collect();
        let at = COLUMNS.len() * 2 + 2 * 2;
        assert_eq!(cells[at..at + 2], ["7", "700"]);
        assert_eq!(cells.iter().filter(|cell| **cell != "0").count(), 2);
    }
}
