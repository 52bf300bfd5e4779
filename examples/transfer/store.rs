//! The accounts, and the record of what was transferred.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::common::{Error, db};
use crate::options::Transfer;

/// The balance of each account at the beginning.
const START: i64 = 100;

const TABLES: &str = "
    CREATE TABLE account (
        id INTEGER PRIMARY KEY,
        balance INTEGER NOT NULL,
        -- The highest fencing token that was shown here.
        zxid INTEGER NOT NULL DEFAULT 0,
        n INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE transfer (payer INTEGER NOT NULL, payee INTEGER NOT NULL, amount INTEGER NOT NULL);
";

/// A fencing token as two columns. Without a lock all tokens are equal, and none is refused.
pub(crate) type Columns = (i64, i64);

#[derive(Debug)]
pub(crate) struct Bank(Connection);

/// The balances of the accounts, and the expected ones.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) transfers: u32,
    pub(crate) total: i64,
    pub(crate) expected_total: i64,
    /// Accounts whose balance is not what the recorded transfers lead to.
    pub(crate) wrong_accounts: u32,
}

impl Bank {
    /// Creates the accounts.
    pub(crate) fn create(file: &Path, accounts: u32) -> Result<Self, Error> {
        let db = db::create(file, TABLES)?;
        for account in 0..accounts {
            db.execute(
                "INSERT INTO account (id, balance) VALUES (?1, ?2)",
                params![account, START],
            )?;
        }
        Ok(Self(db))
    }

    pub(crate) fn open(file: &Path) -> Result<Self, Error> {
        db::open(file).map(Self)
    }

    /// Returns the balance of an account; `None` if a later token has been shown there.
    pub(crate) fn balance(&self, account: u32, (zxid, n): Columns) -> Result<Option<i64>, Error> {
        let mut read = self.0.prepare_cached(
            "UPDATE account SET zxid = ?2, n = ?3
              WHERE id = ?1 AND (zxid, n) <= (?2, ?3) RETURNING balance",
        )?;
        let mut rows = read.query(params![account, zxid, n])?;
        let balance = rows.next()?.map(|row| row.get(0)).transpose()?;
        // The statement commits when its last row has been read.
        while rows.next()?.is_some() {}
        Ok(balance)
    }

    /// Writes the new balances of both accounts, and the transfer; returns `false` if a later token
    /// has been shown at one of them, and writes nothing then.
    pub(crate) fn write(
        &mut self,
        transfer: Transfer,
        balances: [i64; 2],
        tokens: [Columns; 2],
    ) -> Result<bool, Error> {
        let transaction = self.0.transaction()?;
        let Transfer { from, to, amount } = transfer;
        for ((account, balance), (zxid, n)) in [from, to].into_iter().zip(balances).zip(tokens) {
            let mut write = transaction.prepare_cached(
                "UPDATE account SET balance = ?4, zxid = ?2, n = ?3
                  WHERE id = ?1 AND (zxid, n) <= (?2, ?3)",
            )?;
            if write.execute(params![account, zxid, n, balance])? == 0 {
                // Dropping the transaction rolls it back.
                return Ok(false);
            }
        }
        transaction.execute(
            "INSERT INTO transfer VALUES (?1, ?2, ?3)",
            params![from, to, amount],
        )?;
        transaction.commit()?;
        Ok(true)
    }

    /// Compares the balances with the transfers.
    pub(crate) fn audit(&self) -> Result<Audit, Error> {
        let sql =
            "SELECT (SELECT count(*) FROM transfer), sum(balance), count(*) * ?1, sum(balance <> ?1
                     + (SELECT coalesce(sum(amount), 0) FROM transfer WHERE payee = account.id)
                     - (SELECT coalesce(sum(amount), 0) FROM transfer WHERE payer = account.id))
                   FROM account";
        Ok(self.0.query_row(sql, [START], |row| {
            Ok(Audit {
                transfers: row.get(0)?,
                total: row.get(1)?,
                expected_total: row.get(2)?,
                wrong_accounts: row.get(3)?,
            })
        })?)
    }
}
