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

use test_support::{Suite, peers, shared_standalone};

/// A test on the server in this process.
type Test = fn();

fn main() {
    let mut suite = Suite::new();
    // The longest first.
    let in_process: [(&str, Test); 67] = [
        (
            "zklock::the_child_is_dead_before_the_next_is_granted",
            losses::a_child_that_ignores_term_is_dead,
        ),
        (
            "zklock::two_that_did_not_run_say_so",
            losses::two_that_did_not_run_say_so,
        ),
        (
            "zklock::also_if_zklock_is_stopped",
            losses::a_stopped_zklock_cannot_save_its_child,
        ),
        (
            "zklock::one_that_did_not_run_is_no_signal",
            losses::a_stopped_zklock_says_so,
        ),
        (
            "zklock::one_that_did_not_run_does_not_warn",
            losses::a_stopped_zklock_does_not_warn,
        ),
        (
            "zklock::a_leader_that_did_not_run_contends_again",
            losses::a_stopped_leader_contends_again,
        ),
        (
            "zklock::a_job_is_killed_when_its_lock_is_lost",
            losses::a_job_is_killed,
        ),
        (
            "zklock::second_run_of_a_job_is_told",
            losses::a_second_run_is_told,
        ),
        ("zklock::unreachable_servers_are_69", codes::unreachable),
        (
            "zklock::a_child_may_end_in_time_after_a_loss",
            losses::a_child_may_end_in_time,
        ),
        (
            "zklock::a_short_interruption_ends_nothing",
            losses::a_short_interruption,
        ),
        ("zklock::on_lost_kill_comes_at_once", losses::on_lost_kill),
        (
            "zklock::on_lost_warn_lets_the_child_go_on",
            losses::on_lost_warn,
        ),
        ("zklock::on_lost_runs_a_command", losses::on_lost_command),
        (
            "zklock::a_lost_term_is_followed_by_another",
            losses::a_lost_term_is_followed_by_another,
        ),
        (
            "zklock::a_killed_watchdog_is_the_end_of_the_child",
            losses::a_killed_watchdog,
        ),
        (
            "zklock::a_stopped_watchdog_saves_no_child",
            losses::a_stopped_watchdog_saves_no_child,
        ),
        (
            "zklock::full_standard_error_delays_no_signal",
            losses::a_full_standard_error,
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
            "zklock::kills_a_command_that_left_the_group",
            losses::kills_a_command_that_left_the_group,
        ),
        (
            "zklock::signals_to_the_group_spare_the_watchdog",
            losses::signals_to_the_group_spare_the_watchdog,
        ),
        (
            "zklock::a_stopped_watchdog_keeps_no_lock",
            ends::a_stopped_watchdog_keeps_no_lock,
        ),
        (
            "zklock::a_child_dies_with_both",
            ends::a_child_dies_with_both,
        ),
        ("zklock::stopped_commands_are_told", ends::stopped_commands),
        ("zklock::watchdog_has_a_name", ends::watchdog_name),
        (
            "zklock::a_broken_standard_error_ends_nothing",
            ends::broken_standard_error,
        ),
        (
            "zklock::readers_of_the_terminal_are_told",
            terminal::a_reader_is_told,
        ),
        (
            "zklock::shells_without_the_terminal_end",
            terminal::a_shell_ends,
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
            "zklock::interrupt_ends_loops_of_a_shell",
            terminal::a_loop_ends,
        ),
        ("zklock::keys_of_a_terminal_kill", terminal::keys_end_both),
        (
            "zklock::a_child_does_not_outlive_a_killed_zklock",
            ends::a_killed_zklock,
        ),
        (
            "zklock::a_lease_ends_the_child_and_then_the_lock",
            ends::a_lease,
        ),
        (
            "zklock::lease_ends_without_zklock",
            ends::a_lease_ends_without_zklock,
        ),
        (
            "zklock::signals_are_passed_on_and_the_lock_is_kept",
            ends::signals,
        ),
        ("zklock::an_ignored_signal_stays_ignored", ends::nohup),
        (
            "zklock::a_waiting_zklock_leaves_by_a_signal",
            ends::a_waiting_zklock,
        ),
        (
            "zklock::without_a_command_it_holds_and_prints",
            ends::without_a_command,
        ),
        (
            "zklock::a_child_of_a_child_goes_on_after_a_normal_end",
            ends::what_a_child_leaves_behind,
        ),
        (
            "zklock::a_child_may_stay_in_the_foreground",
            ends::foreground,
        ),
        ("zklock::codes_are_passed_on", codes::passed_on),
        (
            "zklock::commands_that_cannot_run_are_126_and_127",
            codes::cannot_run,
        ),
        ("zklock::kill_of_own_group_is_125", codes::killed_groups),
        ("zklock::local_shortages_are_71", codes::shortages),
        (
            "zklock::moved_session_timeout_is_told",
            codes::moved_session_timeouts,
        ),
        ("zklock::busy_is_75_or_what_was_asked_for", codes::busy),
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
        ("zklock::verbose_names_who_is_waited_for", kinds::verbose),
        ("zklock::permits_have_slots", kinds::permits),
        ("zklock::permits_meet_no_other_kind", kinds::kinds_meet),
        ("zklock::once_is_once", kinds::once),
        ("zklock::one_leads_until_it_ends", kinds::lead),
        (
            "zklock::standard_output_is_the_childs_alone",
            kinds::standard_output,
        ),
        (
            "zklock::status_tells_who_holds_and_who_waits",
            tools::status,
        ),
        (
            "zklock::status_shows_the_lock_of_once",
            tools::status_of_once,
        ),
        ("zklock::status_watches", tools::status_watches),
        ("zklock::revoke_asks_the_child_to_end", tools::revoke),
        ("zklock::revoke_asks_a_job_of_once", tools::revoke_of_once),
        ("zklock::break_asks_first", tools::break_lock),
        ("zklock::break_names_the_lock_of_once", tools::break_of_once),
        ("zklock::the_examples_of_the_pages_run", pages::examples),
        (
            "zklock::the_pages_are_those_of_the_program",
            pages::up_to_date,
        ),
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
        (
            "zklock::the_child_is_dead_before_the_next_is_granted",
            false,
        ),
        ("zklock::a_stopped_watchdog_saves_no_child", true),
    ] {
        suite.add_needing("zookeeper", name, peers::zookeeper(), move |_| {
            let servers = shared_standalone().unwrap().connect_string();
            losses::a_child_that_ignores_term_is_dead_on(&servers, is_watchdog_stopped);
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
