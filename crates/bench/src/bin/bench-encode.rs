//! `encode`: canal-json messages from row bytes, in memory, on one core.

use anyhow::Result;
use clap::Parser;
use weir_bench::encode::EncodeRate;

#[derive(Parser, Debug)]
struct Arguments {
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    for rate in [weir_bench::encode::narrow()?, weir_bench::encode::texts()?] {
        print(&rate, arguments.json)?;
    }
    Ok(())
}

fn print(rate: &EncodeRate, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(rate)?);
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
