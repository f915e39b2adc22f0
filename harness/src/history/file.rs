//! The file format of a history: `history.jsonl`.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use super::{Header, History, SCHEMA};

impl History {
    /// The duration of the run, from its beginning to its last record.
    pub fn length(&self) -> Option<Duration> {
        let last = self.records.last()?.ns;
        u64::try_from(last).ok().map(Duration::from_nanos)
    }

    /// Writes the history.
    ///
    /// # Errors
    /// Returns the errors of the writer.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *to, &self.header)?;
        for record in &self.records {
            to.write_all(b"\n")?;
            serde_json::to_writer(&mut *to, record)?;
        }
        to.write_all(b"\n")
    }

    /// Reads a history.
    ///
    /// # Errors
    /// Returns the defect of the file, with the number of the line.
    pub fn read(from: impl BufRead) -> Result<Self, String> {
        let mut lines = from.lines().enumerate();
        let Some((_, first)) = lines.next() else { return Err("it is empty".to_owned()) };
        let first = first.map_err(|why| why.to_string())?;
        let header: Header =
            serde_json::from_str(&first).map_err(|why| format!("line 1 is no header: {why}"))?;
        if header.schema != SCHEMA {
            let found = header.schema;
            return Err(format!("it has schema {found}, and this program reads {SCHEMA}"));
        }
        let mut records = Vec::new();
        for (index, line) in lines {
            let line = line.map_err(|why| format!("line {}: {why}", index + 1))?;
            let record =
                serde_json::from_str(&line).map_err(|why| format!("line {}: {why}", index + 1))?;
            records.push(record);
        }
        Ok(Self { header, records })
    }
}
