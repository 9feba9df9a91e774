use std::fmt;

/// Rows of text, printed in columns that fit.
#[derive(Debug)]
pub struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// A table without rows.
    #[must_use]
    pub fn new(heads: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![heads.map(str::to_owned)],
        }
    }

    /// Adds a row at the end.
    pub fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or_default()
        });
        for (line, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(widths).map(|(cell, width)| {
                // Numbers line up at their right.
                if line > 0 && cell.starts_with(|c: char| c.is_ascii_digit()) {
                    format!("  {cell:>width$}")
                } else {
                    format!("  {cell:<width$}")
                }
            });
            writeln!(f, "{}", cells.collect::<String>().trim_end())?;
            if line == 0 {
                for width in widths {
                    write!(f, "  {}", "-".repeat(width))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["task", "ms"]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["longer".to_owned(), "1000".to_owned()]);
        let expected = "  task    ms\n  ------  ----\n  a          1\n  longer  1000\n";
        assert_eq!(table.to_string(), expected);
    }
}
