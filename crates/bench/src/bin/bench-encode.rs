//! `encode`: canal-json messages from row bytes, in memory, on one core.

use anyhow::Result;
use clap::Parser;

#[derive(Parser, Debug)]
struct Arguments {
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    for rate in [weir_bench::encode::narrow()?, weir_bench::encode::texts()?] {
        rate.print(arguments.json)?;
    }
    Ok(())
}
