//! What every backend promises, as one suite that each of them runs unchanged.
//!
//! A case is an `async fn case(rig: &Rig)`. It knows managers, locks and guards only; the [`Rig`](contract::rig::Rig)
//! knows what they run on, and of which kind the locks are. Cases that a backend or a kind cannot show (no key of `memory://`
//! can be deleted behind the library's back, and a client that polls hears no message) are left out of its list below, and
//! nowhere else.

mod exclusion;
mod fencing;
mod force;
mod handover;
mod kinds;
mod lease;
mod names;
mod queue;
mod release;
mod rig;
mod scope;
mod server;
mod shutdown;
mod threads;

/// A module of tests for one kind of lock on one backend: each case by its own name.
macro_rules! backend {
    ($of:ident on $name:ident: $($topic:ident { $($case:ident),+ $(,)? })+) => {
        mod $name {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let of = crate::kinds::Of::$of;
                    crate::rig::$name(of, crate::$topic::$case).await;
                }
            )+)+
        }
    };
}

/// The cases that hold everywhere for each kind of lock, then those of one backend.
macro_rules! every_lock {
    ($of:ident on $name:ident: $($own:tt)*) => {
        backend! { $of on $name:
            exclusion {
                tasks_of_two_managers_never_overlap,
                sixty_four_tasks_all_get_it,
                at_no_instant_do_two_guards_report_held,
            }
            lease {
                is_held_remaining_and_lost_follow_the_deadline,
                lost_resolves_before_another_is_granted,
                the_watchdog_keeps_a_guard_beyond_three_ttls,
                max_hold_ends_a_renewed_hold,
                max_hold_hands_the_lock_to_the_next_waiter,
                max_hold_of_the_manager_applies_and_a_lock_overrides_it,
                the_ttl_of_a_lock_is_its_own,
            }
            release {
                release_frees_the_lock_at_once,
                drop_releases_in_the_background,
                late_release_says_lost_and_leaves_the_new_holder,
                a_guard_outlives_its_manager,
            }
            queue {
                a_wait_that_ends_says_timed_out_and_leaves_the_queue,
                a_wait_of_zero_says_busy,
                try_acquire_of_a_held_lock_is_none,
                fifo_order_inside_a_manager,
            }
            handover {
                waiters_with_many_names_are_told_apart,
            }
            fencing {
                tokens_grow_over_every_way_a_hold_can_end,
                tokens_grow_over_a_long_line_of_waiters,
            }
            force {
                force_release_of_a_free_lock_is_false,
                errors_name_the_holder,
            }
            names {
                a_tag_is_part_of_the_name,
                any_text_is_a_key,
                different_keys_do_not_wait_for_each_other,
            }
            scope {
                with_returns_the_value_and_releases,
                with_releases_when_the_body_panics,
                with_releases_when_it_is_cancelled,
                with_cancels_the_body_of_a_lost_lock,
            }
            shutdown {
                shutdown_refuses_new_acquisitions,
                shutdown_drains_what_drops_have_queued,
                shutdown_takes_what_is_still_held,
                shutdown_waits_for_a_guard_that_is_released_in_time,
                waiters_of_a_shut_down_manager_are_skipped,
            }
            threads {
                a_guard_dropped_on_a_plain_thread_releases,
                a_guard_dropped_after_its_runtime_is_gone_within_the_ttl,
                a_guard_moves_between_tasks,
                a_guard_dropped_while_unwinding_releases,
                a_spawned_scope_runs,
            }
            $($own)*
        }
    };
}

/// And those of the kinds that have a queue on the server, and the prefix of their manager. A reentrant lock has neither, as a
/// lock of Redisson: if waiters of several managers ask after a release, the first request gets the lock.
macro_rules! suite {
    ($of:ident on $name:ident: $($own:tt)*) => {
        every_lock! { $of on $name:
            queue {
                a_cancelled_wait_leaves_the_queue,
            }
            force {
                force_release_hands_the_lock_on,
                a_list_has_each_held_lock_of_the_prefix_once,
            }
            names { prefixes_separate_managers }
            $($own)*
        }
    };
}

/// And those of a backend that has one queue for a lock, and grants it to the first of it in the same step as the
/// release. The nodes of a quorum have a queue each, and no node can grant what takes a majority: they offer it to the
/// first waiter, which has to come and take it. So there the order is not strict, and a release is done before the next
/// one holds.
macro_rules! suite_with_a_queue {
    ($of:ident on $name:ident: $($own:tt)*) => {
        suite! { $of on $name:
            release { release_returns_with_the_lock_handed_over }
            queue {
                fifo_order_over_managers,
                a_newcomer_never_overtakes_a_live_queue,
                a_newcomer_does_not_overtake_when_the_holder_dies,
            }
            handover {
                a_grant_to_a_cancelled_acquire_is_handed_on,
                each_waiter_is_granted_its_own_ttl,
            }
            force { inspect_shows_each_state }
            $($own)*
        }
    };
}

/// And those of an exclusive lock, which alone has `at_least`.
macro_rules! exclusive {
    ($suite:ident on $name:ident: $($own:tt)*) => {
        $suite! { Exclusive on $name:
            shutdown { shutdown_leaves_a_lock_that_is_to_be_kept }
            $($own)*
        }
    };
}

exclusive! { suite_with_a_queue on memory:
    force { force_release_tells_the_holder }
}
exclusive! { suite_with_a_queue on on_tokio_time:
    force { force_release_tells_the_holder }
}
exclusive! { suite_with_a_queue on redis:
    force { force_release_tells_the_holder }
    server {
        a_release_of_a_key_that_another_took_leaves_it_alone,
        a_key_deleted_by_hand_is_lost_at_the_next_renewal,
        nothing_stays_on_the_server,
        a_lock_of_another_language_excludes_us_and_we_it,
    }
}

/// The cases in which a lock is handed over: these again with other limits of the hand-over inside a process. The
/// usual one is 64.
macro_rules! hand_over_suite {
    ($name:ident) => {
        backend! { Exclusive on $name:
            exclusion {
                tasks_of_two_managers_never_overlap,
                sixty_four_tasks_all_get_it,
                at_no_instant_do_two_guards_report_held,
            }
            lease { max_hold_hands_the_lock_to_the_next_waiter }
            queue {
                a_cancelled_wait_leaves_the_queue,
                fifo_order_inside_a_manager,
            }
            handover { waiters_with_many_names_are_told_apart }
            fencing {
                tokens_grow_over_every_way_a_hold_can_end,
                tokens_grow_over_a_long_line_of_waiters,
            }
            force { force_release_hands_the_lock_on }
            shutdown { waiters_of_a_shut_down_manager_are_skipped }
            server { nothing_stays_on_the_server }
        }
    };
}
hand_over_suite! { in_turns }
hand_over_suite! { in_twos }
// No messages: grants are found by asking, and a forced release at the next renewal.
exclusive! { suite_with_a_queue on resp2:
    force { force_release_is_found_at_the_next_renewal }
    server { nothing_stays_on_the_server }
}
exclusive! { suite_with_a_queue on from_connection:
    force { force_release_is_found_at_the_next_renewal }
    server { nothing_stays_on_the_server }
}
exclusive! { suite_with_a_queue on tls:
    force { force_release_tells_the_holder }
    server { nothing_stays_on_the_server }
}
exclusive! { suite_with_a_queue on sentinel:
    force { force_release_tells_the_holder }
    server { nothing_stays_on_the_server }
}
exclusive! { suite_with_a_queue on cluster:
    force { force_release_tells_the_holder }
}
exclusive! { suite on quorum_3:
    force { force_release_tells_the_holder }
}
exclusive! { suite on quorum_5:
    force { force_release_tells_the_holder }
}

/// The kinds that several may hold, where one excludes the others. Left out: the quorum, which has exclusive locks alone; the
/// limits of the hand-over inside a process, which these kinds do not have; and the lock of another language, which is a string.
macro_rules! of_permits {
    ($of:ident) => {
        suite_with_a_queue! { $of on memory:
            force { force_release_tells_the_holder }
        }
        suite_with_a_queue! { $of on on_tokio_time:
            force { force_release_tells_the_holder }
        }
        suite_with_a_queue! { $of on redis:
            force { force_release_tells_the_holder }
            server {
                a_release_of_a_key_that_another_took_leaves_it_alone,
                a_key_deleted_by_hand_is_lost_at_the_next_renewal,
                nothing_stays_on_the_server,
            }
        }
        suite_with_a_queue! { $of on sentinel:
            force { force_release_tells_the_holder }
            server { nothing_stays_on_the_server }
        }
        suite_with_a_queue! { $of on cluster:
            force { force_release_tells_the_holder }
        }
    };
}
mod semaphore {
    of_permits! { Semaphore }
    suite_with_a_queue! { Semaphore on from_connection:
        force { force_release_is_found_at_the_next_renewal }
        server { nothing_stays_on_the_server }
    }
}
mod writer {
    of_permits! { Writer }
}
/// Reentrant locks. Left out: the quorum, which has exclusive locks alone; the limits of the hand-over inside a process, since
/// a hold is one on the server; and the lock of another language, which is a string.
mod reentrant {
    every_lock! { Reentrant on memory:
        force { force_release_tells_the_holder }
    }
    every_lock! { Reentrant on on_tokio_time:
        force { force_release_tells_the_holder }
    }
    every_lock! { Reentrant on redis:
        force { force_release_tells_the_holder }
        server {
            a_release_of_a_key_that_another_took_leaves_it_alone,
            a_key_deleted_by_hand_is_lost_at_the_next_renewal,
            nothing_stays_on_the_server,
        }
    }
    every_lock! { Reentrant on resp2:
        force { force_release_is_found_at_the_next_renewal }
        server { nothing_stays_on_the_server }
    }
    every_lock! { Reentrant on from_connection:
        force { force_release_is_found_at_the_next_renewal }
        server { nothing_stays_on_the_server }
    }
    every_lock! { Reentrant on sentinel:
        force { force_release_tells_the_holder }
        server { nothing_stays_on_the_server }
    }
    every_lock! { Reentrant on cluster:
        force { force_release_tells_the_holder }
    }
}
/// Exclusive locks through the blocking face. Left out: futures that are dropped.
mod blocking {
    every_lock! { Blocking on redis:
        release { release_returns_with_the_lock_handed_over }
        queue {
            fifo_order_over_managers,
            a_newcomer_never_overtakes_a_live_queue,
        }
        handover { each_waiter_is_granted_its_own_ttl }
        force {
            force_release_tells_the_holder,
            force_release_hands_the_lock_on,
            inspect_shows_each_state,
        }
        names { prefixes_separate_managers }
        shutdown { shutdown_leaves_a_lock_that_is_to_be_kept }
        server {
            a_release_of_a_key_that_another_took_leaves_it_alone,
            a_key_deleted_by_hand_is_lost_at_the_next_renewal,
            nothing_stays_on_the_server,
        }
    }
}
