//! `aureport`.
