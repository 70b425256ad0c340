//! The kernel's functions of the operations of `io_uring`.

use audit::plan::uring::UringOp;

/// Function of an operation; `None` for an operation that is missing here.
///
/// # Source
/// `io_issue_defs` in `io_uring/opdef.c`, Linux 6.19. `io_openat` ends in `io_openat2`.
pub(crate) fn uring_function(operation: &UringOp) -> Option<&'static str> {
    Some(match operation.name {
        "nop" | "nop128" => "io_nop",
        "readv" | "read_fixed" | "read" | "readv_fixed" => "io_read",
        "writev" | "write_fixed" | "write" | "writev_fixed" => "io_write",
        "fsync" => "io_fsync",
        "poll_add" => "io_poll_add",
        "poll_remove" => "io_poll_remove",
        "sync_file_range" => "io_sync_file_range",
        "sendmsg" => "io_sendmsg",
        "recvmsg" => "io_recvmsg",
        "timeout" => "io_timeout",
        "timeout_remove" => "io_timeout_remove",
        "accept" => "io_accept",
        "async_cancel" => "io_async_cancel",
        "connect" => "io_connect",
        "fallocate" => "io_fallocate",
        "openat" | "openat2" => "io_openat2",
        "close" => "io_close",
        "files_update" => "io_files_update",
        "statx" => "io_statx",
        "fadvise" => "io_fadvise",
        "madvise" => "io_madvise",
        "send" => "io_send",
        "recv" => "io_recv",
        "epoll_ctl" => "io_epoll_ctl",
        "splice" => "io_splice",
        "provide_buffers" => "io_provide_buffers",
        "remove_buffers" => "io_remove_buffers",
        "tee" => "io_tee",
        "shutdown" => "io_shutdown",
        "renameat" => "io_renameat",
        "unlinkat" => "io_unlinkat",
        "mkdirat" => "io_mkdirat",
        "symlinkat" => "io_symlinkat",
        "linkat" => "io_linkat",
        "msg_ring" => "io_msg_ring",
        "fsetxattr" => "io_fsetxattr",
        "setxattr" => "io_setxattr",
        "fgetxattr" => "io_fgetxattr",
        "getxattr" => "io_getxattr",
        "socket" => "io_socket",
        "uring_cmd" | "uring_cmd128" => "io_uring_cmd",
        "send_zc" => "io_send_zc",
        "sendmsg_zc" => "io_sendmsg_zc",
        "read_multishot" => "io_read_mshot",
        "waitid" => "io_waitid",
        "futex_wait" => "io_futex_wait",
        "futex_wake" => "io_futex_wake",
        "futex_waitv" => "io_futexv_wait",
        "fixed_fd_install" => "io_install_fixed_fd",
        "ftruncate" => "io_ftruncate",
        "bind" => "io_bind",
        "listen" => "io_listen",
        "recv_zc" => "io_recvzc",
        "epoll_wait" => "io_epoll_wait",
        "pipe" => "io_pipe",
        _ => return None,
    })
}

/// The function that does the work of another one on newer kernels.
///
/// # Source
/// `io_issue_defs` in `io_uring/opdef.c`: `io_manage_buffers_legacy` since 6.17, one function for both
/// zero-copy sends since 7.2.
pub(crate) fn newer_uring_function(function: &str) -> Option<&'static str> {
    match function {
        "io_provide_buffers" | "io_remove_buffers" => Some("io_manage_buffers_legacy"),
        "io_send_zc" => Some("io_sendmsg_zc"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use audit::plan::uring::URING_OPS;

    use super::*;

    #[test]
    fn every_operation_has_a_function() {
        for operation in &URING_OPS {
            assert!(uring_function(operation).is_some(), "{}", operation.name);
        }
    }
}
