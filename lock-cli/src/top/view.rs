//! The screen of `top`.

use lock_core::LockInfo;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Paragraph, Row as Cells, Table, TableState};

use super::model::{Mode, Model, Row};
use crate::shown;

/// A narrower screen leaves out columns.
const WIDE: u16 = 80;

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, server: &str) {
    let opened = match &model.mode {
        Mode::Open { row, info } => Some((
            row,
            info.as_ref()
                .map_or("looking ..".into(), |info| opened(row, info)),
        )),
        _ => None,
    };
    // The list keeps its head and three locks.
    let most = frame.area().height.saturating_sub(5);
    let lower = opened
        .as_ref()
        .map_or(1, |(_, text)| (text.height() as u16 + 2).min(most));
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(lower),
    ]);
    let [head, list, foot] = parts.areas(frame.area());
    frame.render_widget(Paragraph::new(title(model, server)), head);
    table(frame, list, model);
    let foot_text = match opened {
        Some((row, text)) => Paragraph::new(text)
            .block(Block::bordered().title(format!("{} ({})", row.key, row.kind))),
        None => Paragraph::new(help(model)),
    };
    frame.render_widget(foot_text, foot);
}

fn title(model: &Model, server: &str) -> Line<'static> {
    let (locks, waiters) = (model.count(), model.waiters());
    Line::styled(
        format!(
            "{server}  {locks} locks, {waiters} waiting, by {}",
            model.order.name()
        ),
        Style::new().add_modifier(Modifier::BOLD),
    )
}

fn table(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let is_wide = area.width >= WIDE;
    let mut head = vec!["KEY", "HOLDER", "HELD", "WAITERS"];
    let mut widths = vec![
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(9),
        Constraint::Length(7),
    ];
    if is_wide {
        head.extend(["TTL LEFT", "CHANGES", "KIND"]);
        widths.extend([9, 7, 10].map(Constraint::Length));
    }
    // Only what fits: there may be a hundred thousand.
    let (shown, place) = (model.shown(), model.place());
    let fits = usize::from(area.height);
    let first = place
        .saturating_sub(fits / 2)
        .min(shown.len().saturating_sub(fits));
    let rows = shown.iter().skip(first).take(fits);
    let rows = rows.map(|row| Cells::new(cells(row, is_wide)));
    let head = Cells::new(head).style(Style::new().add_modifier(Modifier::UNDERLINED));
    let table = Table::new(rows, widths)
        .header(head)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new();
    if !shown.is_empty() {
        state.select(Some(place - first));
    }
    frame.render_stateful_widget(table, area, &mut state);
}

fn cells(row: &Row, is_wide: bool) -> Vec<String> {
    let held = row
        .since
        .map_or("-".to_owned(), |_| shown::time(row.held()));
    let mut cells = vec![
        row.key.clone(),
        row.holder.clone(),
        held,
        row.waiters.to_string(),
    ];
    if is_wide {
        cells.extend([
            shown::time(row.left),
            row.changes.to_string(),
            row.kind.clone(),
        ]);
    }
    cells
}

fn opened(row: &Row, info: &LockInfo) -> Text<'static> {
    let text = crate::inspect::text(&row.key, &row.kind, info);
    Text::from(
        text.lines()
            .skip(1)
            .map(|line| Line::from(line.to_owned()))
            .collect::<Vec<_>>(),
    )
}

fn help(model: &Model) -> Line<'static> {
    match &model.mode {
        Mode::Filter => Line::from(format!("filter: {}_", model.filter)),
        Mode::Question(row) => Line::styled(
            format!("take {} ({}) from {}? y/n", row.key, row.kind, row.holder),
            Style::new().add_modifier(Modifier::REVERSED),
        ),
        _ if !model.said.is_empty() => Line::from(model.said.clone()),
        _ => Line::from("q quit  s sort  / filter  enter open  u unlock"),
    }
}
