//! Writes the seed corpus: `corpus/<target>/<number>`.

#[path = "packet_seeds.rs"]
mod packet_seeds;
#[path = "seeds.rs"]
mod seeds;
#[path = "subflow_seeds.rs"]
mod subflow_seeds;

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, inputs) in [
        ("handshake", seeds::handshakes()),
        ("stream", seeds::streams()),
        ("subflows", subflow_seeds::subflows()),
        ("packet", packet_seeds::packets()),
        ("msg_endpoint", seeds::streams()),
        ("rdm_endpoint", seeds::streams()),
    ] {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (number, input) in inputs.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), input)?;
        }
    }
    Ok(())
}
