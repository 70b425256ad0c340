//! End-to-end tests: real programs, the real daemon, the stock readers and the kernel's own audit.
//!
//! `cargo xtask test` runs them as root; the program under test is `TOLLGATE_BIN`. An argument selects the
//! tests whose name contains it.
//!
//! The same binary is the workload of the tests: `e2e workload NAME ...`.

#[cfg(test)]
fn main() -> std::process::ExitCode {
    e2e::main()
}

#[cfg(test)]
mod e2e {
    mod archive;
    mod bench;
    mod cases;
    mod control;
    mod daemon;
    mod detections;
    mod differential;
    mod endure;
    mod event;
    mod examples;
    mod exec;
    mod field;
    mod full_disk;
    mod handover;
    mod harness;
    mod hostile;
    mod json;
    mod kernel_audit;
    mod kernel_records;
    mod lifecycle;
    mod live_view;
    mod load;
    mod locked;
    mod log_settings;
    mod other_build;
    mod packaging;
    mod plugin;
    mod privilege;
    mod raw_syscalls;
    mod readme;
    mod recorded;
    mod reload;
    mod run;
    mod run_differential;
    mod run_environments;
    mod run_lifecycle;
    mod run_programs;
    mod scenario;
    mod startup_errors;
    mod status_metrics;
    mod step;
    mod stock_auditctl;
    mod stock_readers;
    mod stop_time;
    mod syscall;
    mod task_list;
    mod test_dir;
    mod unproven;
    mod watch;
    mod workload;
    mod wrong_files;

    use std::process::ExitCode;

    use harness::{Test, tests};

    const TESTS: &[Test] = tests![
        syscall::every_event_is_found_once,
        syscall::failed_calls_are_found_once,
        syscall::records_of_an_event_are_contiguous,
        syscall::abis_are_distinguished,
        syscall::stock_programs_are_seen,
        exec::programs_scripts_and_descriptors,
        exec::failed_execs_name_the_program,
        exec::each_exec_variant_is_recorded,
        exec::task_exit_is_an_event,
        exec::arguments_fill_several_records,
        unproven::unexecuted_calls_are_marked,
        unproven::unexecuted_calls_without_a_key_are_marked,
        unproven::sigreturn_is_recorded,
        unproven::exit_under_a_tracer_is_recorded,
        unproven::opens_are_recorded_although_threads_replace_descriptors,
        unproven::objects_of_later_arguments_are_seen,
        unproven::socket_addresses_are_recorded,
        field::ids_select_tasks,
        field::outcome_selects_events,
        field::arguments_select_events,
        field::ids_are_compared_with_each_other,
        field::supplementary_groups_count,
        field::exe_selects_events,
        field::perm_selects_opens,
        field::the_first_match_decides,
        field::several_keys_are_all_found,
        field::sixty_fields_are_one_rule,
        task_list::never_task_rule_lasts_for_the_task,
        task_list::always_task_rule_records_every_syscall,
        watch::watched_file_is_recorded_under_every_name,
        watch::watch_outlives_its_file,
        watch::watched_directory_covers_its_subtree,
        watch::unwatched_files_are_not_recorded,
        watch::watches_hold_in_a_chroot,
        watch::five_hundred_watches,
        watch::unreachable_watch_does_not_stop_the_daemon,
        hostile::hostile_bytes_decode_back,
        hostile::hostile_arguments_decode_back,
        hostile::longest_path_is_complete,
        hostile::hostile_key_is_found,
        lifecycle::signals_stop_the_daemon_with_a_summary,
        stop_time::stops_are_quick_with_rules_about_all_calls,
        stop_time::commands_are_quick_with_rules_about_all_calls,
        stop_time::each_call_is_recorded_once_when_rules_about_all_calls_come_and_go,
        stop_time::stopped_daemon_is_reported_soon,
        lifecycle::events_are_written_at_once,
        lifecycle::detached_daemon_lets_go_of_its_streams,
        lifecycle::doctor_names_the_engine_that_the_daemon_takes,
        lifecycle::explain_names_the_engine_that_the_daemon_takes,
        lifecycle::killed_daemon_leaves_nothing_attached,
        lifecycle::only_named_syscalls_are_attached,
        lifecycle::daemon_is_not_audited,
        lifecycle::two_daemons_record_the_same,
        lifecycle::kernel_audit_is_unchanged,
        archive::killed_daemon_loses_nothing_of_its_archives,
        archive::archives_need_no_time_of_creation,
        full_disk::full_disk_losses_are_counted_and_reported,
        full_disk::status_shows_a_suspended_log,
        full_disk::next_daemon_reports_what_a_killed_one_lost,
        full_disk::rotation_on_a_full_disk_loses_nothing,
        log_settings::log_write_error_runs_its_action,
        log_settings::signals_rotate_and_reconfigure_the_log,
        log_settings::locked_log_keeps_its_path,
        log_settings::locked_log_is_the_one_in_use,
        log_settings::failed_rotation_loses_no_event,
        log_settings::log_group_applies_to_rotated_logs,
        log_settings::priority_change_applies_at_once,
        log_settings::stock_ausearch_reads_an_enriched_log,
        json::json_log_is_rotated_on_request,
        json::flush_waits_for_the_json_log,
        json::json_log_losses_are_reported_in_the_log,
        json::json_log_has_more_than_records,
        status_metrics::metrics_are_served,
        status_metrics::status_watch_shows_program_runs,
        detections::own_sigma_rules_find_what_is_done,
        detections::usual_work_raises_no_high_alert,
        examples::rules_have_current_prices,
        examples::commands_exist,
        packaging::unit_files_are_valid,
        packaging::setup_installs_what_is_needed,
        packaging::uninstall_removes_what_was_installed,
        packaging::upgrade_does_not_restart_a_locked_daemon,
        packaging::removal_detaches_what_a_killed_daemon_left,
        packaging::journald_drop_in_keeps_kernel_audit,
        packaging::shells_complete_the_commands,
        plugin::plugin_gets_every_record_and_eoe,
        plugin::ended_plugin_is_restarted_at_a_line_boundary,
        plugin::blocked_plugin_loses_only_its_own_events,
        plugin::slow_plugin_losses_are_counted_exactly,
        plugin::crashing_plugin_is_disabled_until_hup,
        plugin::stock_audisp_syslog_forwards_events,
        plugin::auparse_plugin_gets_every_event,
        plugin::builtin_socket_serves_both_formats,
        privilege::running_daemon_has_few_capabilities,
        privilege::symlinked_log_directory_is_refused,
        privilege::systemd_is_notified_of_each_state,
        privilege::journal_messages_have_priorities,
        readme::every_command_works,
        readme::a_wrong_command_is_found,
        readme::no_command_is_overlooked,
        readme::shown_output_is_real,
        recorded::auditd_logs_match_golden_files,
        startup_errors::invalid_rules_attach_nothing,
        startup_errors::a_missing_configuration_file_exits_with_6,
        startup_errors::undeniable_syscalls_are_reported,
        startup_errors::unprivileged_user_gets_an_error,
        startup_errors::unsafe_log_directory_is_refused,
        wrong_files::last_good_rules_are_used_at_a_start,
        wrong_files::last_good_configuration_is_used_at_a_start,
        wrong_files::reload_applies_all_files_or_none,
        wrong_files::second_start_uses_the_last_good_rules,
        wrong_files::reload_reports_refused_rules,
        wrong_files::denied_key_without_a_rule_is_refused,
        wrong_files::log_has_one_writer,
        wrong_files::status_without_a_daemon_names_the_pins,
        wrong_files::rules_in_the_kernels_audit_are_reported,
        wrong_files::kernels_audit_is_taken_over_after_auditds_rules,
        control::rules_are_added_and_deleted,
        control::rule_file_is_loaded_atomically,
        control::lock_outlives_the_daemon,
        control::only_root_may_connect,
        live_view::events_are_shown_and_filtered,
        live_view::slow_viewers_lose_only_their_own_events,
        live_view::only_root_and_the_group_may_watch,
        live_view::number_of_viewers_is_limited,
        live_view::top_reports_rules_and_losses,
        live_view::top_restores_the_terminal,
        control::hostile_clients_do_not_disturb_others,
        control::messages_and_flushes_reach_the_log,
        stock_auditctl::auditctl_output_matches_stock,
        control::rule_is_added_under_load,
        reload::no_event_is_lost_or_duplicated,
        reload::rules_about_objects_hold_in_each_half,
        reload::hooks_follow_the_rules,
        reload::reload_applies_settings_in_rule_files,
        reload::invalid_rules_keep_the_old_ones,
        reload::rule_file_settings_match_auditctl,
        handover::events_of_a_killed_daemon_are_written_once,
        handover::rule_change_across_restart_loses_no_event,
        handover::kill_during_replacement_leaves_no_partial_rules,
        handover::clean_exit_unpins_everything,
        handover::locked_rules_stay_attached,
        locked::settings_cannot_change_while_locked,
        locked::restart_keeps_the_locked_log,
        locked::unusable_pinned_state_is_kept,
        locked::failed_lock_leaves_nothing_half_applied,
        handover::restarts_do_not_grow_pinned_state,
        other_build::unknown_ring_format_is_not_decoded,
        other_build::other_build_writes_pending_events,
        other_build::other_build_is_followed_without_a_gap,
        other_build::interrupted_takeover_is_reported,
        other_build::losses_of_other_options_are_reported,
        handover::pinned_state_has_one_daemon,
        kernel_records::user_and_kernel_records_are_logged,
        kernel_records::beside_auditd_records_are_read_only,
        kernel_records::changes_of_a_killed_daemon_are_restored,
        kernel_records::exiting_daemon_writes_received_records,
        endure::many_rule_replacements,
        endure::many_short_processes,
        endure::a_long_log_leaves_the_page_cache,
        endure::flood_costs_no_event_of_another_user_for_long,
        load::burst_loses_nothing,
        load::full_ring_losses_are_counted,
        load::flood_costs_no_event_of_another_user,
        load::rate_limit_losses_are_counted_and_reported,
        differential::kernel_and_tollgate_agree,
        stock_readers::stock_readers_agree_on_both_logs,
        run::every_syscall_of_a_command_is_recorded,
        run::status_streams_and_signals_pass_through,
        run::results_are_omitted_unless_rules_need_them,
        run::json_option_prints_json,
        run::command_with_its_own_seccomp_filter_is_followed,
        run::nested_tracer_works_or_is_refused,
        run::lost_privileges_are_reported,
        run::addresses_and_names_behind_descriptors_are_recorded,
        run_differential::kernel_and_run_agree,
        run_lifecycle::ten_thousand_short_processes,
        run_lifecycle::two_hundred_threads_at_once,
        run_lifecycle::tasks_killed_in_a_stop_do_not_hang,
        run_lifecycle::killed_supervisor_ends_the_command,
        run_lifecycle::full_log_losses_are_counted,
        run_lifecycle::job_control_passes_through,
        run_environments::unprivileged_container,
        run_environments::make_run_without_root,
        run_environments::sandbox_restrictions_are_named,
        run_programs::a_c_build,
        run_programs::a_rust_build,
        run_programs::a_git_clone,
        run_programs::a_python_test_run,
        run_programs::a_go_test_run,
        run_programs::a_redis_server_and_its_benchmark,
        bench::every_case_runs_and_is_reported,
        bench::a_case_of_peers_runs_beside_eaudit,
        bench::interrupted_run_restores_state,
        bench::killed_run_is_restored_at_once,
        bench::killed_run_is_restored_later,
        bench::running_auditd_keeps_its_rules,
    ];

    pub(crate) fn main() -> ExitCode {
        harness::main(TESTS)
    }
}
