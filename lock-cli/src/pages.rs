//! What is generated from the command line: completions and a page for `man`.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::exit::Failure;
use crate::options::Cli;
use crate::shown;

pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lockctl", &mut text);
    shown::print(&text);
    ExitCode::SUCCESS
}

/// One page: the commands are sections of it.
pub(crate) fn man() -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    let command = Cli::command();
    let rendered = Man::new(command.clone()).render(&mut text).and_then(|()| {
        let commands = command.get_subcommands();
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
    shown::print(&text);
    Ok(ExitCode::SUCCESS)
}
