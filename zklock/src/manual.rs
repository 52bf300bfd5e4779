//! The manual pages.
//!
//! `clap_mangen` has a synopsis without the `--` of a command, and refers to a page of each command
//! of this program, also to those that do not exist. The usage, which `--help` shows too, takes the
//! place of both.

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// Returns the manual page of this program, or of one of its commands.
pub(crate) fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let (man, mut page) = (Man::new(command.clone()), Vec::new());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        commands(command).to_writer(&mut page)?;
    }
    if command.get_after_help().is_some() {
        man.render_extra_section(&mut page)?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

fn synopsis(command: &clap::Command) -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["SYNOPSIS"]);
    for (number, line) in usage(command).iter().enumerate() {
        if number > 0 {
            section.control("br", []);
        }
        section.text([roman(line)]);
    }
    section
}

fn commands(program: &clap::Command) -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["COMMANDS"]);
    for command in program.get_subcommands() {
        section.control("TP", []);
        section.text([roman(usage(command).join(", "))]);
        let about = command.get_about().map(ToString::to_string);
        section.text([roman(about.unwrap_or_default())]);
    }
    section
}

/// Returns the ways to call a command, each in a line.
fn usage(command: &clap::Command) -> Vec<String> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    usage.lines().map(|line| line.trim().to_owned()).collect()
}
