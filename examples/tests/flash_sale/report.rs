//! Reads what the program prints.

use std::collections::BTreeMap;

/// The numbers of all sales, by strategy.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) sales: BTreeMap<String, Sale>,
}

/// The numbers of one sale.
#[derive(Debug, Default)]
pub(crate) struct Sale {
    pub(crate) sold: u64,
    pub(crate) oversold: u64,
    pub(crate) lost: u64,
    pub(crate) stored: u64,
    pub(crate) twice: u64,
    pub(crate) workers_killed: u64,
    pub(crate) claimed: u64,
    pub(crate) stored_before: u64,
    pub(crate) refused: u64,
    pub(crate) lost_updates: u64,
    pub(crate) holders_killed: u64,
    pub(crate) holders_paused: u64,
    pub(crate) stale_tried: u64,
    pub(crate) stale_refused: u64,
}

impl Report {
    pub(crate) fn read(output: &str) -> Self {
        let mut sales = BTreeMap::new();
        for line in output.lines() {
            // A row of the table: the columns are at least two spaces apart.
            let cells: Vec<_> = line
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect();
            if cells.len() == 8 && cells[1].parse::<u64>().is_ok() {
                let number = |column: usize| cells[column].parse().unwrap();
                let sale = Sale {
                    sold: number(1),
                    oversold: number(2),
                    lost: number(3),
                    ..Sale::default()
                };
                assert!(cells[4].parse::<f64>().unwrap() > 0.0, "{line}");
                assert!(cells[7].parse::<f64>().unwrap() > 1.0, "{line}");
                sales.insert(cells[0].to_owned(), sale);
            }
            // A remark: `strategy: words and numbers; ..`.
            if let Some((name, remarks)) = line.split_once(": ")
                && let Some(sale) = sales.get_mut(name)
            {
                sale.remark(remarks);
            }
        }
        Self { sales }
    }
}

impl Sale {
    fn remark(&mut self, remarks: &str) {
        for remark in remarks.trim_end_matches('.').split([';', ',', ':']) {
            let words: Vec<_> = remark.split_whitespace().collect();
            let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
            let Some(&number) = numbers.first() else {
                continue;
            };
            match &words[1..] {
                ["sold"] => assert_eq!(number, self.sold),
                ["stored"] => self.stored = number,
                ["lost"] => assert_eq!(number, self.lost),
                ["twice"] => self.twice = number,
                ["workers", "killed"] => self.workers_killed = number,
                ["orders", "claimed", ..] => self.claimed = number,
                ["of", "them", "stored", "before"] => self.stored_before = number,
                ["requests", "refused", ..] => self.refused = number,
                ["updates", "lost"] => self.lost_updates = number,
                ["holder", "processes", "killed", ..] => {
                    (self.holders_killed, self.holders_paused) = (number, numbers[1]);
                }
                ["writes", "tried", ..] => self.stale_tried = number,
                ["of", "these", "refused"] => self.stale_refused = number,
                _ => {}
            }
        }
    }
}
