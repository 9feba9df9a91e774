//! `lockctl top`: the held locks, live in the terminal.

mod model;
mod view;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use futures_util::future::{Fuse, FusedFuture};
use futures_util::{FutureExt, StreamExt};
use lock_core::{LockError, LockManager};
use ratatui::DefaultTerminal;
use tokio::time::{MissedTickBehavior, interval};

use self::model::{Model, Press, Row, Wish};
use crate::exit::{Failure, said};
use crate::lock::Handle;
use crate::ls;
use crate::options::{Server, Top};

/// More looks would cost the server more than they show.
const AT_MOST: Duration = Duration::from_millis(100);

pub(crate) async fn run(server: &Server, options: &Top) -> Result<ExitCode, Failure> {
    if !io::stdout().is_terminal() {
        let instead = "`top` needs a terminal: use `ls` for text, or `ls --json`";
        return Err(Failure::Usage(instead.to_owned()));
    }
    let locks = server.connect().await?;
    let name = shown_url(server.url()?);
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::system("the terminal", &error))?;
    let outcome = watch(&mut terminal, &locks, options, &name).await;
    ratatui::restore();
    outcome.map(|()| ExitCode::SUCCESS)
}

/// The URL without a password.
fn shown_url(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    format!("{scheme}://{rest}")
}

async fn watch(
    terminal: &mut DefaultTerminal,
    locks: &LockManager,
    options: &Top,
    name: &str,
) -> Result<(), Failure> {
    let (mut model, mut events) = (Model::default(), EventStream::new());
    let mut again = interval(options.every.max(AT_MOST));
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A look at many locks, or at a server that hangs, takes its time, and the keys go on.
    let mut looking = pin!(Fuse::terminated());
    loop {
        let drawn = terminal.draw(|frame| view::draw(frame, &model, name));
        drawn.map_err(|error| Failure::system("the terminal", &error))?;
        tokio::select! {
            _ = again.tick(), if looking.is_terminated() => {
                looking.set(ls::all(locks).fuse());
            }
            listed = &mut looking => {
                match listed {
                    Ok(listed) => model.update(&listed),
                    Err(error) => model.said = said(&error),
                }
                if let Some(row) = model.open() {
                    look(&mut model, locks, &row).await;
                }
            }
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) => {
                    let wish = pressed(key).map_or(Wish::Nothing, |press| model.press(press));
                    match wish {
                        Wish::Quit => return Ok(()),
                        Wish::Nothing => {}
                        Wish::Look(row) => look(&mut model, locks, &row).await,
                        Wish::Unlock(row) => {
                            model.said = unlock(locks, &row).await.unwrap_or_else(|error| said(&error));
                            again.reset_immediately();
                        }
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Failure::system("the keyboard", &error)),
                None => return Ok(()),
            },
        }
    }
}

/// Takes the lock from the holders that are on the screen.
async fn unlock(locks: &LockManager, row: &Row) -> Result<String, LockError> {
    let lock = of(locks, row);
    let info = lock.inspect().await?;
    Ok(if !info.is_held() {
        format!("{} is free", row.key)
    } else if !row.is_held_as(&info) {
        format!("{} has another holder now", row.key)
    } else if lock.force_release().await? {
        format!("{} was taken from {}", row.key, row.holder)
    } else {
        format!("{} is free", row.key)
    })
}

async fn look(model: &mut Model, locks: &LockManager, row: &Row) {
    match of(locks, row).inspect().await {
        Ok(info) => model.looked(row, info),
        Err(error) => model.said = said(&error),
    }
}

fn of(locks: &LockManager, row: &Row) -> Handle {
    Handle::listed(locks, &row.kind, &row.key)
}

fn pressed(key: KeyEvent) -> Option<Press> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Press::Interrupt,
        KeyCode::Char(c) => Press::Char(c),
        KeyCode::Up => Press::Up,
        KeyCode::Down => Press::Down,
        KeyCode::Enter => Press::Enter,
        KeyCode::Esc => Press::Escape,
        KeyCode::Backspace => Press::Backspace,
        _ => return None,
    })
}
