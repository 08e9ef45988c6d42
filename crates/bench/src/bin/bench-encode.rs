//! `encode`: canal-json messages from row bytes, in memory, on one core.

use anyhow::Result;
use clap::Parser;

#[derive(Parser, Debug)]
struct Arguments {
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let rate = weir_bench::encode::narrow()?;
    if arguments.json {
        println!("{}", serde_json::to_string(&rate)?);
    } else {
        println!(
            "{}  {:.0} rows/s ({:.0} to {:.0}), {:.0} MB/s, {} bytes a message  [{}]",
            rate.name,
            rate.rows_per_second,
            rate.range.0,
            rate.range.1,
            rate.mb_per_second,
            rate.bytes_per_message,
            rate.notes
        );
    }
    Ok(())
}
