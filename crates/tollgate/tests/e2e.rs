//! End-to-end tests: real programs, the real daemon, the stock readers and the kernel's own audit.
//!
//! `cargo xtask test` runs them, as root; the program under test is `TOLLGATE_BIN`. With arguments,
//! only tests whose name contains one of them run. The last line is `N passed, N failed, N skipped`.
//!
//! The same binary is the workload of the tests: `e2e workload NAME ...`.

#[cfg(test)]
fn main() -> std::process::ExitCode {
    e2e::main()
}

#[cfg(test)]
mod e2e {
    mod answers;
    mod bench;
    mod calls;
    mod cases;
    mod control;
    mod daemon;
    mod differential;
    mod endure;
    mod event;
    mod exec;
    mod field;
    mod fork;
    mod full;
    mod harness;
    mod hostile;
    mod json;
    mod keeping;
    mod kernel_audit;
    mod life;
    mod load;
    mod locked;
    mod messages;
    mod outside;
    mod packaging;
    mod place;
    mod plugin;
    mod privilege;
    mod recorded;
    mod refusal;
    mod reload;
    mod run;
    mod run_differential;
    mod run_life;
    mod run_places;
    mod run_programs;
    mod scenario;
    mod step;
    mod stock;
    mod survive;
    mod syscall;
    mod watch;
    mod workload;

    use std::process::ExitCode;

    use harness::{Test, tests};

    const TESTS: &[Test] = tests![
        syscall::every_event_is_found_once,
        syscall::failed_calls_are_found_once,
        syscall::records_of_an_event_are_contiguous,
        syscall::calls_of_both_abis_are_told_apart,
        syscall::stock_programs_are_seen,
        exec::programs_scripts_and_descriptors,
        exec::failed_execs_name_what_was_tried,
        exec::every_way_to_exec_is_itself,
        exec::the_end_of_a_task_is_an_event,
        exec::arguments_fill_several_records,
        field::ids_choose_tasks,
        field::outcome_chooses_events,
        field::arguments_choose_events,
        field::ids_are_compared_with_each_other,
        field::supplementary_groups_count,
        field::the_program_chooses_events,
        field::access_modes_choose_opens,
        field::the_first_match_decides,
        field::several_keys_are_all_found,
        field::sixty_fields_are_one_rule,
        fork::a_task_that_is_never_audited_stays_so,
        fork::every_call_of_a_task_is_recorded,
        watch::a_watched_file_is_seen_under_every_name,
        watch::a_watched_name_outlives_its_file,
        watch::a_watched_directory_covers_what_is_below,
        watch::what_is_not_watched_is_not_seen,
        watch::chroot_does_not_confuse,
        watch::five_hundred_watches,
        hostile::hostile_bytes_decode_back,
        hostile::hostile_arguments_decode_back,
        hostile::the_longest_path_is_whole,
        hostile::a_hostile_key_is_found,
        life::signals_end_it_with_a_summary,
        life::events_are_written_while_it_runs,
        life::a_killed_daemon_leaves_nothing_attached,
        life::only_named_syscalls_are_attached,
        life::daemon_is_not_audited,
        life::two_daemons_see_the_same,
        life::kernel_audit_is_left_alone,
        full::what_a_full_disk_loses_is_counted_and_told,
        full::status_shows_a_suspended_log,
        full::a_full_disk_that_is_rotated_loses_nothing,
        keeping::a_log_that_cannot_be_written_is_acted_upon,
        keeping::signals_rotate_and_reconfigure_the_log,
        keeping::a_log_that_is_locked_stays_where_it_is,
        keeping::what_is_locked_is_the_log_that_is_written,
        keeping::a_rotation_that_does_not_happen_costs_no_event,
        keeping::the_group_of_the_log_has_the_old_ones_too,
        keeping::another_priority_holds_at_once,
        keeping::stock_ausearch_reads_an_enriched_log,
        json::the_json_log_is_rotated_when_somebody_asks,
        json::a_flush_waits_for_the_json_log,
        json::what_the_json_log_lacks_is_told_in_the_log,
        json::the_json_log_tells_more_than_records,
        outside::metrics_are_told_to_who_asks,
        outside::the_status_is_watched_and_has_the_runs_of_programs,
        packaging::the_unit_is_right,
        packaging::an_upgrade_restarts_no_daemon_that_has_locked,
        packaging::journald_leaves_the_kernels_audit_as_it_is,
        packaging::shells_complete_the_commands,
        plugin::a_plugin_is_given_every_line_and_the_end_of_each_event,
        plugin::a_plugin_that_ends_is_started_again_and_no_line_is_cut,
        plugin::a_plugin_that_never_reads_loses_only_its_own_events,
        plugin::what_a_slow_plugin_loses_is_counted_exactly,
        plugin::a_plugin_that_crashes_is_given_up_until_hup,
        plugin::stock_audisp_syslog_passes_events_on,
        plugin::a_plugin_that_feeds_auparse_sees_every_event,
        plugin::the_builtin_socket_serves_both_formats,
        privilege::a_running_daemon_has_few_rights_and_does_its_work,
        privilege::a_log_directory_that_becomes_a_link_is_refused,
        privilege::systemd_is_told_of_each_state,
        privilege::the_journal_is_given_priorities,
        recorded::what_auditd_makes_of_messages_is_kept,
        refusal::broken_rules_attach_nothing,
        refusal::a_missing_configuration_file_exits_with_6,
        refusal::what_cannot_be_denied_is_said,
        refusal::an_unprivileged_user_is_told_so,
        refusal::an_unsafe_log_directory_is_refused,
        control::rules_come_and_go,
        control::a_file_is_loaded_at_once_or_not_at_all,
        control::what_is_locked_outlives_the_daemon,
        control::only_root_may_ask,
        control::hostile_clients_disturb_nobody,
        control::messages_and_flushes_reach_the_log,
        stock::what_is_shown_is_what_stock_auditctl_shows,
        control::a_rule_is_added_under_load,
        reload::no_event_is_lost_or_doubled,
        reload::hooks_follow_the_rules,
        reload::settings_of_rules_are_read_with_them,
        reload::rules_that_cannot_be_loaded_leave_the_old_ones,
        reload::rule_files_set_and_record_what_auditctl_does,
        survive::what_a_killed_daemon_leaves_is_written_once,
        survive::other_rules_are_put_in_force_without_a_gap,
        survive::a_daemon_killed_amid_a_replacement_leaves_no_trace_of_it,
        survive::an_orderly_end_leaves_nothing_pinned,
        survive::what_is_locked_goes_on_after_its_daemon,
        locked::other_settings_change_nothing,
        locked::a_restart_moves_stops_and_shortens_no_log,
        locked::what_cannot_be_gone_on_with_stays,
        locked::failed_lock_leaves_nothing_half_applied,
        survive::restarts_add_nothing,
        survive::what_cannot_be_read_is_not_misread,
        survive::another_build_writes_what_it_finds,
        survive::one_daemon_at_a_time_uses_what_is_pinned,
        messages::what_programs_and_the_kernel_say_is_in_the_log,
        messages::beside_auditd_messages_are_read_and_nothing_is_changed,
        messages::what_a_killed_daemon_has_changed_is_put_back,
        messages::a_daemon_that_leaves_writes_what_it_was_sent,
        endure::rules_are_replaced_very_often,
        endure::very_many_short_processes,
        endure::a_long_log_leaves_the_page_cache,
        load::a_burst_loses_nothing,
        load::what_a_full_ring_loses_is_counted,
        load::a_rate_limit_loses_what_is_above_it_and_says_so,
        differential::kernel_and_tollgate_agree,
        answers::stock_programs_answer_the_same_of_both_logs,
        run::every_step_of_a_command_is_seen,
        run::status_streams_and_signals_are_the_commands_own,
        run::results_are_left_out_where_no_rule_asks,
        run::events_are_json_when_asked_for,
        run::a_command_with_a_filter_of_its_own_is_followed,
        run::a_tracer_inside_works_or_is_told_why_not,
        run::who_loses_rights_is_told_why,
        run::addresses_and_names_behind_descriptors_are_recorded,
        run_differential::kernel_and_run_agree,
        run_life::ten_thousand_short_processes,
        run_life::two_hundred_threads_at_once,
        run_life::tasks_that_end_in_a_stop_hang_nobody,
        run_life::a_killed_supervisor_takes_the_command_along,
        run_life::a_full_log_is_counted_and_stops_nobody,
        run_life::job_control_passes_through,
        run_places::a_container_without_rights,
        run_places::make_run_without_root,
        run_places::what_a_sandbox_forbids_is_named,
        run_programs::a_c_build,
        run_programs::a_rust_build,
        run_programs::a_git_clone,
        run_programs::a_python_test_run,
        run_programs::a_go_test_run,
        run_programs::a_redis_server_and_its_benchmark,
        bench::every_case_runs_and_is_shown,
        bench::an_interrupted_one_puts_everything_back,
        bench::a_killed_one_is_repaired_at_once,
        bench::a_killed_one_is_repaired_later,
        bench::an_auditd_of_today_keeps_its_rules,
    ];

    pub(crate) fn main() -> ExitCode {
        harness::main(TESTS)
    }
}
