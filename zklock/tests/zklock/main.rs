//! `zklock` as its users run it: processes of the built program, on the server in this process and
//! on a real one.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod codes;
mod curator;
mod ends;
mod kinds;
mod losses;
mod pages;
#[cfg(any(feature = "tls", feature = "sasl-digest-md5"))]
mod secure;
mod started;
mod terminal;
mod tools;

use std::time::Duration;

use test_support::{Suite, peers, shared_standalone};

/// How long a test may take. The longest takes half a minute on a quiet machine, and none waits for
/// one event for more than [`SOON`](test_support::SOON).
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A test on the server in this process.
type Test = fn();

fn main() {
    let mut suite = Suite::new();
    suite.time_limit(TIME_LIMIT);
    // The longest tests start first.
    let in_process: [(&str, Test); 102] = [
        (
            "zklock::child_dies_before_the_next_grant",
            losses::child_ignoring_term_is_dead,
        ),
        (
            "zklock::stopped_pair_reports_its_deadline",
            losses::stopped_pair_reports_its_deadline,
        ),
        (
            "zklock::stopped_zklock_saves_no_child",
            losses::stopped_zklock_saves_no_child,
        ),
        (
            "zklock::stopped_zklock_reports_the_loss",
            losses::stopped_zklock_reports_the_loss,
        ),
        (
            "zklock::stopped_zklock_does_not_warn",
            losses::stopped_zklock_does_not_warn,
        ),
        (
            "zklock::stopped_leader_contends_again",
            losses::stopped_leader_contends_again,
        ),
        (
            "zklock::lost_lock_kills_the_job",
            losses::lost_lock_kills_the_job,
        ),
        (
            "zklock::stopped_job_has_its_deadline",
            losses::stopped_job_has_its_deadline,
        ),
        (
            "zklock::second_job_run_is_told",
            losses::second_job_run_is_told,
        ),
        (
            "zklock::signal_ends_a_job_in_doubt",
            losses::signal_ends_a_job_in_doubt,
        ),
        (
            "zklock::own_end_outlives_a_late_loss",
            losses::own_end_outlives_a_late_loss,
        ),
        (
            "zklock::signal_at_a_loss_ends_a_leader",
            losses::signal_at_a_loss_ends_a_leader,
        ),
        ("zklock::unreachable_servers_are_69", codes::unreachable),
        (
            "zklock::child_may_end_after_a_loss",
            losses::child_may_end_after_a_loss,
        ),
        (
            "zklock::short_interruption_ends_nothing",
            losses::short_interruption_ends_nothing,
        ),
        ("zklock::on_lost_kill_comes_at_once", losses::on_lost_kill),
        (
            "zklock::on_lost_warn_spares_the_child",
            losses::on_lost_warn,
        ),
        (
            "zklock::lease_end_overrides_on_lost_warn",
            losses::on_lost_warn_after_a_lease,
        ),
        ("zklock::full_log_ends_nothing", ends::full_log),
        (
            "zklock::on_lost_command_knows_its_lock",
            losses::on_lost_environment,
        ),
        (
            "zklock::killed_watchdog_ends_a_warned_child",
            losses::on_lost_warn_and_a_killed_watchdog,
        ),
        (
            "zklock::on_lost_warn_outlasts_a_lease",
            losses::on_lost_warn_and_a_lease,
        ),
        ("zklock::on_lost_runs_a_command", losses::on_lost_command),
        (
            "zklock::on_lost_terminates_without_a_shell",
            losses::on_lost_command_fails,
        ),
        (
            "zklock::mistyped_on_lost_sends_sigterm",
            losses::on_lost_command_is_mistyped,
        ),
        (
            "zklock::stop_at_start_saves_no_child",
            ends::stop_at_the_start,
        ),
        (
            "zklock::blocked_signal_delays_no_start",
            ends::blocked_signals,
        ),
        (
            "zklock::lost_term_is_followed_by_another",
            losses::lost_term_is_followed_by_another,
        ),
        (
            "zklock::killed_watchdog_ends_the_child",
            losses::killed_watchdog_ends_the_child,
        ),
        (
            "zklock::stopped_watchdog_saves_no_child",
            losses::stopped_watchdog_saves_no_child,
        ),
        (
            "zklock::full_standard_error_delays_no_signal",
            losses::a_full_standard_error,
        ),
        (
            "zklock::full_standard_error_delays_no_end",
            losses::usage_errors_on_a_full_pipe,
        ),
        (
            "zklock::full_standard_output_delays_no_signal",
            losses::a_full_standard_output,
        ),
        (
            "zklock::orders_wake_a_stopped_watchdog",
            losses::orders_wake_a_stopped_watchdog,
        ),
        (
            "zklock::terminal_stops_spare_the_watchdog",
            losses::terminal_stops_spare_the_watchdog,
        ),
        (
            "zklock::kills_what_outlives_its_leader",
            losses::kills_what_outlives_its_leader,
        ),
        (
            "zklock::kills_a_command_outside_the_group",
            losses::kills_a_command_outside_the_group,
        ),
        (
            "zklock::kills_a_command_beside_zklock",
            losses::kills_a_command_beside_zklock,
        ),
        (
            "zklock::group_signals_spare_the_watchdog",
            losses::group_signals_spare_the_watchdog,
        ),
        (
            "zklock::stopped_watchdog_keeps_no_lock",
            ends::stopped_watchdog_keeps_no_lock,
        ),
        (
            "zklock::child_dies_with_both_processes",
            ends::child_dies_with_both_processes,
        ),
        (
            "zklock::stopped_watchdog_ends_after_zklock",
            ends::stopped_watchdog_ends_after_zklock,
        ),
        ("zklock::stopped_commands_are_told", ends::stopped_commands),
        ("zklock::early_begin_changes_no_stop", ends::early_begin),
        ("zklock::watchdog_has_a_name", ends::watchdog_name),
        (
            "zklock::watchdog_spares_the_group_of_others",
            ends::watchdog_by_hand,
        ),
        (
            "zklock::broken_standard_error_ends_nothing",
            ends::broken_standard_error,
        ),
        (
            "zklock::readers_of_terminal_are_warned",
            terminal::readers_of_terminal_are_warned,
        ),
        (
            "zklock::shells_without_the_terminal_end",
            terminal::shells_without_the_terminal_end,
        ),
        (
            "zklock::background_output_stops_no_start",
            terminal::background_output_stops_no_start,
        ),
        (
            "zklock::signals_wake_stopped_children",
            terminal::signals_wake_a_reader,
        ),
        (
            "zklock::foreground_children_read_the_terminal",
            terminal::foreground_reads,
        ),
        (
            "zklock::interrupt_reaches_another_group",
            terminal::interrupt_reaches_another_group,
        ),
        (
            "zklock::interrupt_ends_loops_of_a_shell",
            terminal::a_loop_ends,
        ),
        ("zklock::keys_of_a_terminal_kill", terminal::keys_end_both),
        (
            "zklock::child_ends_with_a_killed_zklock",
            ends::child_ends_with_a_killed_zklock,
        ),
        (
            "zklock::early_interrupt_ends_a_child",
            ends::early_interrupt,
        ),
        (
            "zklock::early_begin_gets_one_interrupt",
            ends::early_begin_in_foreground,
        ),
        (
            "zklock::child_does_not_ignore_sigchld",
            ends::ignored_child_signal,
        ),
        (
            "zklock::own_group_ends_with_a_killed_zklock",
            ends::own_group_ends_with_a_killed_zklock,
        ),
        (
            "zklock::lease_ends_child_then_lock",
            ends::lease_ends_child_then_lock,
        ),
        (
            "zklock::lease_ends_without_zklock",
            ends::a_lease_ends_without_zklock,
        ),
        ("zklock::signals_reach_child_lock_is_kept", ends::signals),
        ("zklock::ignored_signal_stays_ignored", ends::nohup),
        (
            "zklock::unblocked_signal_reaches_the_child",
            ends::unblocked_signals,
        ),
        ("zklock::broken_pipes_end_the_child", ends::broken_pipes),
        ("zklock::timers_reach_the_child", ends::timers),
        (
            "zklock::signal_ends_a_waiting_zklock",
            ends::signal_ends_a_waiting_zklock,
        ),
        (
            "zklock::holds_and_prints_without_a_command",
            ends::holds_and_prints_without_a_command,
        ),
        (
            "zklock::grandchild_outlives_a_normal_end",
            ends::grandchild_outlives_a_normal_end,
        ),
        ("zklock::child_may_stay_in_the_foreground", ends::foreground),
        ("zklock::codes_are_passed_on", codes::passed_on),
        (
            "zklock::unrunnable_commands_are_126_and_127",
            codes::cannot_run,
        ),
        ("zklock::kill_of_own_group_is_125", codes::killed_groups),
        ("zklock::local_shortages_are_71", codes::shortages),
        ("zklock::small_stack_is_enough", codes::small_stack),
        (
            "zklock::moved_session_timeout_is_told",
            codes::moved_session_timeouts,
        ),
        ("zklock::busy_is_75_or_as_asked", codes::busy),
        (
            "zklock::silence_while_waiting_is_69",
            codes::silence_while_waiting,
        ),
        ("zklock::no_permission_is_77", codes::no_permission),
        ("zklock::wrong_usage_is_64", codes::usage),
        (
            "zklock::two_exclude_each_other",
            kinds::two_exclude_each_other,
        ),
        (
            "zklock::readers_share_and_writers_do_not",
            kinds::readers_and_writers,
        ),
        ("zklock::verbose_names_the_holder", kinds::verbose),
        ("zklock::permits_have_slots", kinds::permits),
        ("zklock::permits_meet_no_other_kind", kinds::kinds_meet),
        ("zklock::once_runs_a_single_time", kinds::once),
        ("zklock::leader_leads_until_it_ends", kinds::lead),
        (
            "zklock::standard_output_is_the_childs_alone",
            kinds::standard_output,
        ),
        ("zklock::status_names_holders_and_waiters", tools::status),
        (
            "zklock::status_shows_the_lock_of_once",
            tools::status_of_once,
        ),
        ("zklock::status_watches", tools::status_watches),
        (
            "zklock::status_ends_with_its_reader",
            tools::status_without_reader,
        ),
        ("zklock::revoke_asks_the_child_to_end", tools::revoke),
        ("zklock::revoke_asks_a_job_of_once", tools::revoke_of_once),
        ("zklock::break_asks_first", tools::break_lock),
        (
            "zklock::break_after_revoke_is_told",
            tools::break_after_revoke,
        ),
        (
            "zklock::break_before_the_end_is_told",
            tools::break_before_the_end,
        ),
        ("zklock::break_names_the_lock_of_once", tools::break_of_once),
        ("zklock::examples_of_the_pages_run", pages::examples),
        ("zklock::pages_match_the_program", pages::up_to_date),
        ("zklock::manual_shows_its_usage", pages::manual),
    ];
    for (name, test) in in_process {
        suite.add("in-process", name, test);
    }
    suite.add_needing(
        "zookeeper",
        "zklock::two_exclude_each_other",
        peers::zookeeper(),
        |_| {
            let servers = shared_standalone().unwrap();
            kinds::exclude_each_other(&servers.connect_string());
        },
    );
    for (name, is_watchdog_stopped) in [
        ("zklock::child_dies_before_the_next_grant", false),
        ("zklock::stopped_watchdog_saves_no_child", true),
    ] {
        suite.add_needing("zookeeper", name, peers::zookeeper(), move |_| {
            let servers = shared_standalone().unwrap().connect_string();
            losses::child_ignoring_term_is_dead_on(&servers, is_watchdog_stopped);
        });
    }
    let both = peers::curator().and_then(|curator| peers::zookeeper().map(|_| curator));
    suite.add_needing(
        "curator",
        "zklock::java_and_zklock_take_turns",
        both,
        |curator| {
            curator::take_turns(&curator, &shared_standalone().unwrap().connect_string());
        },
    );
    #[cfg(any(feature = "tls", feature = "sasl-digest-md5"))]
    secure::add_all(&mut suite);
    suite.run()
}
