//! The four plots of the report, drawn from what was measured.

use lock_plot::{Frame, Scale};

use crate::line::{Hold, Micros};
use crate::measure::{Sale, percentile, seconds};

/// More points than this cannot be told apart.
const POINTS: usize = 400;
/// How much of a sale the timeline shows.
const MOMENT: Micros = 150_000;
const OVERLAP: &str = "#ff0033";
const PROCESSES: [&str; 6] = [
    "#2f6fde", "#e58a00", "#13a08a", "#8e44c9", "#7f9a1f", "#c2558f",
];

/// A bar for each strategy.
pub(crate) fn throughput(sales: &[Sale]) -> String {
    let rows = sales.len() as f64;
    let scale = Scale::powers_around(sales.iter().map(Sale::throughput));
    // The shortest bar begins at the edge of the scale, and should still be one.
    let scale = match scale {
        Scale::Log(low, high) => Scale::Log(low / 10.0, high),
        linear @ Scale::Linear(..) => linear,
    };
    let edge = scale_low(scale);
    let mut svg = Frame::new(70.0 + 34.0 * rows, scale, Scale::Linear(0.0, rows), &[]);
    svg.x_axis("pieces per second", number);
    for (row, sale) in sales.iter().rev().enumerate() {
        let (name, y) = (sale.strategy.name(), row as f64);
        let sold = sale.throughput();
        let label = format!("{sold:.0}");
        svg.row(y + 0.5, name);
        svg.bar(
            (edge, y + 0.18),
            (sold, y + 0.82),
            sale.strategy.colour(),
            &format!("{name}: {label} per second"),
        );
        svg.words(sold, y + 0.5, &label);
    }
    svg.element("pieces sold per second, for each strategy")
}

fn scale_low(scale: Scale) -> f64 {
    match scale {
        Scale::Linear(low, _) | Scale::Log(low, _) => low,
    }
}

/// The share of buyers who had theirs after so long.
pub(crate) fn latency(sales: &[Sale]) -> String {
    let ends = sales.iter().flat_map(|sale| {
        [sale.waits.first(), sale.waits.last()]
            .into_iter()
            .flatten()
    });
    let x = Scale::powers_around(ends.map(|wait| seconds(*wait)));
    let mut svg = Frame::new(380.0, x, Scale::Linear(0.0, 100.0), &names(sales));
    svg.x_axis("time waited", time);
    svg.y_axis("buyers served", |share| format!("{share:.0} %"));
    for sale in sales {
        let points = (0..=POINTS).map(|point| {
            let share = point as f64 / POINTS as f64;
            (seconds(percentile(&sale.waits, share)), share * 100.0)
        });
        svg.line(points, sale.strategy.colour(), sale.strategy.name());
    }
    svg.element("the distribution of waiting times, for each strategy")
}

/// What was left, from time to time.
pub(crate) fn stock(sales: &[Sale]) -> String {
    let times = sales
        .iter()
        .flat_map(|sale| sale.left.iter().map(|(at, _)| seconds(*at)));
    let x = Scale::powers_around(times.filter(|time| *time >= 0.001));
    let most = sales
        .iter()
        .map(|sale| sale.stock)
        .max()
        .unwrap_or(1)
        .max(1);
    let mut svg = Frame::new(380.0, x, Scale::Linear(0.0, most as f64), &names(sales));
    svg.x_axis("time since the doors opened", time);
    svg.y_axis("pieces left", |left| format!("{left:.0}"));
    for sale in sales {
        let step = sale.left.len().div_ceil(POINTS).max(1);
        let last = sale.left.last();
        let thinned = sale.left.iter().step_by(step).chain(last);
        // What is in stock stays so until it changes: a line of steps.
        let mut before = sale.stock as f64;
        let points = thinned.flat_map(|(at, left)| {
            let (at, left) = (seconds(*at), *left as f64);
            [(at, std::mem::replace(&mut before, left)), (at, left)]
        });
        svg.line(points, sale.strategy.colour(), sale.strategy.name());
    }
    svg.element("the stock over time, for each strategy")
}

/// The legend.
fn names(sales: &[Sale]) -> Vec<(&'static str, &'static str)> {
    sales
        .iter()
        .map(|sale| (sale.strategy.name(), sale.strategy.colour()))
        .collect()
}

/// A row for each process or segment of each sale that used locks.
pub(crate) fn holders(sales: &[Sale]) -> String {
    let locked: Vec<_> = sales
        .iter()
        .filter(|sale| !sale.holds.is_empty())
        .map(Lanes::new)
        .collect();
    let rows: usize = locked.iter().map(|lanes| lanes.count + 1).sum();
    let height = 70.0 + 11.0 * rows.max(4) as f64;
    let x = Scale::Linear(0.0, seconds(MOMENT));
    let mut svg = Frame::new(height, x, Scale::Linear(0.0, rows.max(4) as f64), &[]);
    svg.x_axis("time, in a part of the sale", time);
    if locked.is_empty() {
        svg.words(0.0, 2.0, "No lock was held: these strategies need none.");
    }
    let mut top = rows as f64;
    for lanes in locked {
        top -= lanes.count as f64 + 1.0;
        lanes.draw(&mut svg, top);
    }
    svg.element("who held the lock, in a moment of each sale")
}

/// The part of the timeline that belongs to one sale.
struct Lanes<'a> {
    sale: &'a Sale,
    count: usize,
    from: Micros,
}

impl<'a> Lanes<'a> {
    fn new(sale: &'a Sale) -> Self {
        let parts = sale.strategy.parts();
        let processes = sale.holds.iter().map(|(process, _)| process + 1).max();
        // In the thick of it: after a third of all holds, not of the time, which may have passed in waiting.
        let mut begins: Vec<_> = sale.holds.iter().map(|(_, hold)| hold.from).collect();
        begins.sort_unstable();
        Self {
            sale,
            count: if parts == 1 {
                processes.unwrap_or(1)
            } else {
                parts
            },
            from: begins[begins.len() / 3],
        }
    }

    /// The part of a hold that can be seen, in seconds.
    fn seen(&self, hold: &Hold) -> Option<(f64, f64)> {
        let until = self.from + MOMENT;
        let seen = hold.to >= self.from && hold.from < until;
        let inside = |at: Micros| seconds(at.clamp(self.from, until) - self.from);
        seen.then(|| (inside(hold.from), inside(hold.to)))
    }

    fn draw(&self, svg: &mut Frame, bottom: f64) {
        let (name, count) = (self.sale.strategy.name(), self.count as f64);
        svg.row(bottom + count / 2.0, name);
        let one_lock = self.sale.strategy.parts() == 1;
        for (process, hold) in &self.sale.holds {
            let Some((from, to)) = self.seen(hold) else {
                continue;
            };
            let lane = if one_lock { *process } else { hold.segment };
            let y = bottom + count - 1.0 - lane as f64;
            svg.bar(
                (from, y + 0.1),
                (to, y + 0.9),
                PROCESSES[process % PROCESSES.len()],
                &format!("{name}: process {}, segment {}", process + 1, hold.segment),
            );
        }
        if one_lock {
            for hold in overlaps(&self.sale.holds) {
                if let Some((from, to)) = self.seen(&hold) {
                    svg.bar(
                        (from, bottom - 0.25),
                        (to, bottom + 0.0),
                        OVERLAP,
                        "two at once",
                    );
                }
            }
        }
    }
}

/// When two had one lock at the same time.
fn overlaps(holds: &[(usize, Hold)]) -> Vec<Hold> {
    let mut holds: Vec<_> = holds.iter().map(|(_, hold)| *hold).collect();
    holds.sort_unstable_by_key(|hold| hold.from);
    let mut overlaps = Vec::new();
    let mut until = 0;
    for hold in holds {
        if hold.from < until {
            overlaps.push(Hold {
                to: until.min(hold.to),
                ..hold
            });
        }
        until = until.max(hold.to);
    }
    overlaps
}

fn number(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{:.0} k", value / 1e3)
    } else if value >= 1.0 {
        format!("{value:.0}")
    } else {
        format!("{value}")
    }
}

/// Seconds, in the unit that suits.
fn time(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.0} s")
    } else if seconds >= 0.001 || seconds == 0.0 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{:.0} µs", seconds * 1e6)
    }
}
