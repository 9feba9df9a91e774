//! What is generated from the command line: completions and a page for `man`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::exit::Failure;
use crate::options::Cli;

pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lockctl", &mut text);
    print(&text)
}

/// One page: the commands are sections of it.
pub(crate) fn man() -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    let command = Cli::command();
    let rendered = Man::new(command.clone()).render(&mut text).and_then(|()| {
        let commands = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        commands.cloned().try_for_each(|command| {
            let name = command.get_name().to_uppercase();
            writeln!(text, ".SH {name}")?;
            let man = Man::new(command);
            man.render_description_section(&mut text)?;
            man.render_synopsis_section(&mut text)?;
            man.render_options_section(&mut text)
        })
    });
    rendered.map_err(|error| Failure::system("the page", &error))?;
    print(&text)
}

fn print(text: &[u8]) -> Result<ExitCode, Failure> {
    let written = io::stdout().write_all(text);
    written.map_err(|error| Failure::system("the output", &error))?;
    Ok(ExitCode::SUCCESS)
}
