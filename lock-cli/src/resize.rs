//! `lockctl resize`: another number of permits.

use std::process::ExitCode;

use crate::exit::{Failure, NO};
use crate::options::{Resize, Server};
use crate::shown;
use crate::unlock::is_meant;

pub(crate) async fn run(server: &Server, options: &Resize) -> Result<ExitCode, Failure> {
    let Resize { key, from, to, yes } = options;
    let locks = server.connect().await?;
    let shown = shown::plain(key);
    let question = format!(
        "{shown} gets {to} permits instead of {from}. Programs that name another number than these two are refused. Resize it?"
    );
    if !yes && !is_meant(&question)? {
        shown::say(format_args!("{shown} stays as it is"));
        return Ok(ExitCode::from(NO));
    }
    locks.semaphore(key, *from).resize(*to).await?;
    shown::say(format_args!("{shown} has {to} permits"));
    Ok(ExitCode::SUCCESS)
}
