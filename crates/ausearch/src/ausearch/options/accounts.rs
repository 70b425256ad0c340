//! Options that name users, groups and sessions.

use bstr::ByteSlice as _;

use super::Parser;
use super::specs::Id;
use crate::accounts::group_number;
use crate::command_line::{self, is_negative, is_numeric};
use crate::ctext::low_32;
use crate::fields::{NO_ID, NO_LOGIN};
use crate::filter::Account;

impl Parser {
    pub(super) fn group(&mut self, id: Id, value: &[u8]) -> Result<(), String> {
        let shown = value.to_str_lossy();
        let gid = if is_numeric(value) {
            let number = command_line::unsigned(value, u32::MAX.into());
            low_32(number.map_err(|error| {
                format!("Numeric group ID conversion error ({error}) for {shown}\n")
            })?)
        } else {
            let effective = if id == Id::GidEffective {
                "Effective group"
            } else {
                "Group"
            };
            group_number(value)
                .ok_or_else(|| format!("{effective} ID is non-numeric and unknown ({shown})\n"))?
        };
        let gid = (gid != NO_ID).then_some(gid);
        let filter = &mut self.options.filter;
        if id != Id::GidEffective {
            filter.gid = gid;
        }
        if id != Id::Gid {
            filter.egid = gid;
        }
        filter.any_group |= id == Id::GidAll;
        Ok(())
    }

    pub(super) fn user(&mut self, id: Id, value: &[u8]) -> Result<(), String> {
        let shown = value.to_str_lossy();
        let (uid, name) = if is_numeric(value) {
            (user_number(value)?, None)
        } else {
            // The stock tool calls the user the effective one.
            let kind = if id == Id::Uid {
                "Effective user"
            } else {
                "User"
            };
            let uid = self.accounts.user_number(value);
            let unknown = || format!("{kind} ID is non-numeric and unknown ({shown})\n");
            (uid.ok_or_else(unknown)?, Some(value))
        };
        let filter = &mut self.options.filter;
        if matches!(id, Id::Uid | Id::UidAll) {
            set_user(&mut filter.uid, uid, NO_ID, name);
        }
        if matches!(id, Id::UidEffective | Id::UidAll) {
            set_user(&mut filter.euid, uid, NO_ID, name);
        }
        if id == Id::UidAll {
            set_user(&mut filter.auid, uid, NO_LOGIN, name);
            filter.any_user = true;
        }
        Ok(())
    }

    pub(super) fn loginuid(&mut self, value: &[u8]) -> Result<(), String> {
        let shown = value.to_str_lossy();
        let (uid, name) = if is_numeric(value) {
            (user_number(value)?, None)
        } else if is_negative(value) {
            (negative(value)?, None)
        } else {
            let uid = self.accounts.user_number(value);
            let unknown = || format!("Login user ID is non-numeric and unknown ({shown})\n");
            (uid.ok_or_else(unknown)?, Some(value))
        };
        set_user(&mut self.options.filter.auid, uid, NO_LOGIN, name);
        Ok(())
    }

    pub(super) fn session(&mut self, value: &[u8]) -> Result<(), String> {
        let session = login_number(value, "Error converting", |shown| {
            format!("Session id must be a numeric value, was {shown}\n")
        })?;
        self.options.filter.session = (session != NO_LOGIN).then_some(session);
        Ok(())
    }
}

/// Sets a user. A number beside a name that was given before leaves the name.
fn set_user(slot: &mut Option<Account>, id: u32, unset: u32, name: Option<&[u8]>) {
    if let Some(account) = slot
        .as_mut()
        .filter(|account| account.name.is_some() && name.is_none())
    {
        account.id = id;
    } else if id == unset && name.is_none() {
        *slot = None;
    } else {
        *slot = Some(Account {
            id,
            name: name.map(<[u8]>::to_vec),
        });
    }
}

fn user_number(value: &[u8]) -> Result<u32, String> {
    let number = command_line::unsigned(value, u32::MAX.into());
    number.map(low_32).map_err(|error| {
        let shown = value.to_str_lossy();
        format!("Numeric user ID conversion error ({error}) for {shown}\n")
    })
}

/// A negative number of 32 bits.
fn negative(value: &[u8]) -> Result<u32, String> {
    let number = command_line::signed(value)
        .ok()
        .and_then(|number| i32::try_from(number).ok());
    let error = || format!("Error converting {}\n", value.to_str_lossy());
    Ok(number.ok_or_else(error)?.cast_unsigned())
}

fn login_number(
    value: &[u8],
    error: &str,
    neither: impl FnOnce(&str) -> String,
) -> Result<u32, String> {
    let shown = value.to_str_lossy();
    if is_numeric(value) {
        let number = command_line::unsigned(value, u32::MAX.into());
        number
            .map(low_32)
            .ok()
            .ok_or_else(|| format!("{error} {shown}\n"))
    } else if is_negative(value) {
        negative(value)
    } else {
        Err(neither(&shown))
    }
}
