//! A seeded load in the manner of TPC-C: nine tables, five transactions, emitted as SQL text.
//!
//! The shape follows TPC-C revision 5.11 (clauses 1.3 and 2.4–2.8) at a reduced scale. The generator keeps the state
//! that the transactions need (next order numbers, orders not yet delivered), so nothing has to be read back.

use std::collections::VecDeque;
use std::fmt::Write;

use crate::rng::Rng;

/// Rows of one multi-row INSERT while loading.
const LOAD_BATCH: u64 = 100;
/// Share of new orders that name an unused item and are rolled back (clause 2.4.1.4).
const ROLLBACK_PERCENT: u64 = 1;
/// Share of payments by a customer of another warehouse (clause 2.5.1.2).
const REMOTE_PAYMENT_PERCENT: u64 = 15;

/// How many rows the tables start with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) warehouses: u64,
    pub(crate) districts: u64,
    pub(crate) customers: u64,
    pub(crate) items: u64,
}

#[derive(Debug, Default)]
struct District {
    next_order: u64,
    /// Orders not yet delivered: (order, customer, lines).
    open: VecDeque<(u64, u64, u64)>,
}

/// The generator.
#[derive(Debug)]
pub(crate) struct Tpcc {
    rng: Rng,
    scale: Scale,
    /// The warehouses this stream works on; streams with disjoint ones can run side by side.
    own: std::ops::RangeInclusive<u64>,
    districts: Vec<District>,
}

/// The nine tables.
pub(crate) const SCHEMA: &str = "
CREATE TABLE warehouse (w_id INT NOT NULL PRIMARY KEY, w_name VARCHAR(10), w_street_1 VARCHAR(20), w_street_2 VARCHAR(20), w_city VARCHAR(20), w_state CHAR(2), w_zip CHAR(9), w_tax DECIMAL(4,4), w_ytd DECIMAL(12,2));
CREATE TABLE district (d_id INT NOT NULL, d_w_id INT NOT NULL, d_name VARCHAR(10), d_street_1 VARCHAR(20), d_street_2 VARCHAR(20), d_city VARCHAR(20), d_state CHAR(2), d_zip CHAR(9), d_tax DECIMAL(4,4), d_ytd DECIMAL(12,2), d_next_o_id INT, PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (c_id INT NOT NULL, c_d_id INT NOT NULL, c_w_id INT NOT NULL, c_first VARCHAR(16), c_middle CHAR(2), c_last VARCHAR(16), c_street_1 VARCHAR(20), c_street_2 VARCHAR(20), c_city VARCHAR(20), c_state CHAR(2), c_zip CHAR(9), c_phone CHAR(16), c_since DATETIME, c_credit CHAR(2), c_credit_lim DECIMAL(12,2), c_discount DECIMAL(4,4), c_balance DECIMAL(12,2), c_ytd_payment DECIMAL(12,2), c_payment_cnt INT, c_delivery_cnt INT, c_data VARCHAR(500), PRIMARY KEY (c_w_id, c_d_id, c_id), KEY customer_name (c_w_id, c_d_id, c_last));
CREATE TABLE history (h_c_id INT NOT NULL, h_c_d_id INT NOT NULL, h_c_w_id INT NOT NULL, h_d_id INT NOT NULL, h_w_id INT NOT NULL, h_date DATETIME, h_amount DECIMAL(6,2), h_data VARCHAR(24));
CREATE TABLE new_order (no_o_id INT NOT NULL, no_d_id INT NOT NULL, no_w_id INT NOT NULL, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE orders (o_id INT NOT NULL, o_d_id INT NOT NULL, o_w_id INT NOT NULL, o_c_id INT, o_entry_d DATETIME, o_carrier_id INT, o_ol_cnt INT, o_all_local INT, PRIMARY KEY (o_w_id, o_d_id, o_id), KEY orders_customer (o_w_id, o_d_id, o_c_id, o_id));
CREATE TABLE order_line (ol_o_id INT NOT NULL, ol_d_id INT NOT NULL, ol_w_id INT NOT NULL, ol_number INT NOT NULL, ol_i_id INT NOT NULL, ol_supply_w_id INT, ol_delivery_d DATETIME, ol_quantity INT, ol_amount DECIMAL(6,2), ol_dist_info CHAR(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
CREATE TABLE item (i_id INT NOT NULL PRIMARY KEY, i_im_id INT, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50));
CREATE TABLE stock (s_i_id INT NOT NULL, s_w_id INT NOT NULL, s_quantity INT, s_dist_01 CHAR(24), s_dist_02 CHAR(24), s_dist_03 CHAR(24), s_dist_04 CHAR(24), s_dist_05 CHAR(24), s_dist_06 CHAR(24), s_dist_07 CHAR(24), s_dist_08 CHAR(24), s_dist_09 CHAR(24), s_dist_10 CHAR(24), s_ytd INT, s_order_cnt INT, s_remote_cnt INT, s_data VARCHAR(50), PRIMARY KEY (s_w_id, s_i_id));
";

macro_rules! emit {
    ($out:expr, $($arg:tt)*) => {
        // Writing to a String cannot fail.
        write!($out, $($arg)*).unwrap_or_default()
    };
}

impl Tpcc {
    /// A stream over the warehouses `own`.
    pub(crate) fn new(seed: u64, scale: Scale, own: std::ops::RangeInclusive<u64>) -> Self {
        let count = scale.warehouses * scale.districts;
        let districts = (0..count)
            .map(|_| District {
                next_order: 1,
                open: VecDeque::new(),
            })
            .collect::<Vec<_>>();
        Self {
            rng: Rng::new(seed),
            scale,
            own,
            districts,
        }
    }

    fn district(&mut self, w: u64, d: u64) -> &mut District {
        let index = usize::try_from((w - 1) * self.scale.districts + d - 1).unwrap_or(usize::MAX);
        &mut self.districts[index]
    }

    /// Fills items, and warehouses, districts, customers and stock of the stream's own warehouses.
    pub(crate) fn load(&mut self, out: &mut String, with_items: bool) {
        if with_items {
            let items = self.scale.items;
            self.bulk(out, "item", items, |rng, out, id| {
                emit!(out, "({id},{},'", rng.range(1, 10_000));
                rng.text(out, 14, 24);
                emit!(out, "',{}.{:02},'", rng.range(1, 99), rng.range(0, 99));
                rng.text(out, 26, 50);
                out.push_str("')");
            });
        }
        for w in self.own.clone() {
            self.load_warehouse(out, w);
        }
    }

    fn load_warehouse(&mut self, out: &mut String, w: u64) {
        emit!(out, "INSERT INTO warehouse VALUES ({w}");
        self.address(out);
        out.push_str(",300000.00);\n");
        for d in 1..=self.scale.districts {
            emit!(out, "INSERT INTO district VALUES ({d},{w}");
            self.address(out);
            out.push_str(",30000.00,1);\n");
            let customers = self.scale.customers;
            self.bulk(out, "customer", customers, |rng, out, id| {
                customer(rng, out, id, d, w);
            });
        }
        let items = self.scale.items;
        self.bulk(out, "stock", items, |rng, out, id| {
            emit!(out, "({id},{w},{}", rng.range(10, 100));
            for _ in 0..10 {
                out.push_str(",'");
                rng.text(out, 24, 24);
                out.push('\'');
            }
            out.push_str(",0,0,0,'");
            rng.text(out, 26, 50);
            out.push_str("')");
        });
    }

    fn bulk(&mut self, out: &mut String, table: &str, rows: u64, row: impl Fn(&mut Rng, &mut String, u64)) {
        for id in 1..=rows {
            out.push_str(if id % LOAD_BATCH == 1 { "INSERT INTO " } else { "," });
            if id % LOAD_BATCH == 1 {
                emit!(out, "{table} VALUES ");
            }
            row(&mut self.rng, out, id);
            if id % LOAD_BATCH == 0 || id == rows {
                out.push_str(";\n");
            }
        }
    }

    /// Name, two streets, city, state, zip and tax, each after a comma.
    fn address(&mut self, out: &mut String) {
        for (low, high) in [(6, 10), (10, 20), (10, 20), (10, 20), (2, 2)] {
            out.push_str(",'");
            self.rng.text(out, low, high);
            out.push('\'');
        }
        out.push_str(",'");
        self.rng.digits(out, 4);
        emit!(out, "11111',0.{:04}", self.rng.range(0, 2000));
    }

    /// One transaction of the usual mix: 45 % new order, 43 % payment, 4 % each of the others.
    pub(crate) fn transaction(&mut self, out: &mut String) {
        let w = self.rng.range(*self.own.start(), *self.own.end());
        let d = self.rng.range(1, self.scale.districts);
        match self.rng.range(1, 100) {
            1..=45 => self.new_order(out, w, d),
            46..=88 => self.payment(out, w, d),
            89..=92 => self.order_status(out, w, d),
            93..=96 => self.delivery(out, w),
            _ => self.stock_level(out, w, d),
        }
    }

    fn any_customer(&mut self) -> u64 {
        self.rng.range(1, self.scale.customers)
    }

    fn new_order(&mut self, out: &mut String, w: u64, d: u64) {
        let customer = self.any_customer();
        let lines = self.rng.range(5, 15);
        let rolled_back = self.rng.percent(ROLLBACK_PERCENT);
        let order = self.district(w, d).next_order;
        emit!(
            out,
            "BEGIN;\nUPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = {w} AND d_id = {d};\n"
        );
        emit!(
            out,
            "INSERT INTO orders VALUES ({order},{d},{w},{customer},NOW(),NULL,{lines},1);\n"
        );
        emit!(out, "INSERT INTO new_order VALUES ({order},{d},{w});\n");
        let mut order_lines = String::from("INSERT INTO order_line VALUES ");
        for number in 1..=lines {
            let item = self.rng.range(1, self.scale.items);
            let quantity = self.rng.range(1, 10);
            emit!(
                out,
                "UPDATE stock SET s_quantity = IF(s_quantity >= {quantity} + 10, s_quantity - {quantity}, \
                 s_quantity - {quantity} + 91), s_ytd = s_ytd + {quantity}, s_order_cnt = s_order_cnt + 1 \
                 WHERE s_w_id = {w} AND s_i_id = {item};\n"
            );
            let comma = if number == 1 { "" } else { "," };
            emit!(
                order_lines,
                "{comma}({order},{d},{w},{number},{item},{w},NULL,{quantity},"
            );
            emit!(
                order_lines,
                "{}.{:02},'",
                self.rng.range(1, 999),
                self.rng.range(0, 99)
            );
            self.rng.text(&mut order_lines, 24, 24);
            order_lines.push_str("')");
        }
        out.push_str(&order_lines);
        out.push_str(if rolled_back {
            ";\nROLLBACK;\n"
        } else {
            ";\nCOMMIT;\n"
        });
        if !rolled_back {
            let district = self.district(w, d);
            district.next_order += 1;
            district.open.push_back((order, customer, lines));
        }
    }

    fn payment(&mut self, out: &mut String, w: u64, d: u64) {
        let remote = self.rng.percent(REMOTE_PAYMENT_PERCENT);
        let customer_w = if remote {
            self.rng.range(*self.own.start(), *self.own.end())
        } else {
            w
        };
        let customer = self.any_customer();
        let (whole, cents) = (self.rng.range(1, 4999), self.rng.range(0, 99));
        emit!(
            out,
            "BEGIN;\nUPDATE warehouse SET w_ytd = w_ytd + {whole}.{cents:02} WHERE w_id = {w};\n"
        );
        emit!(
            out,
            "UPDATE district SET d_ytd = d_ytd + {whole}.{cents:02} WHERE d_w_id = {w} AND d_id = {d};\n"
        );
        emit!(
            out,
            "UPDATE customer SET c_balance = c_balance - {whole}.{cents:02}, c_ytd_payment = c_ytd_payment + \
             {whole}.{cents:02}, c_payment_cnt = c_payment_cnt + 1, c_data = IF(c_credit = 'BC', LEFT(CONCAT_WS(' ', \
             c_id, c_d_id, c_w_id, {d}, {w}, {whole}, c_data), 500), c_data) \
             WHERE c_w_id = {customer_w} AND c_d_id = {d} AND c_id = {customer};\n"
        );
        emit!(
            out,
            "INSERT INTO history VALUES ({customer},{d},{customer_w},{d},{w},NOW(),{whole}.{cents:02},'"
        );
        self.rng.text(out, 12, 24);
        out.push_str("');\nCOMMIT;\n");
    }

    fn order_status(&mut self, out: &mut String, w: u64, d: u64) {
        let customer = self.any_customer();
        emit!(
            out,
            "SELECT o.o_id, ol.ol_i_id, ol.ol_amount FROM orders o JOIN order_line ol ON ol.ol_w_id = o.o_w_id AND \
             ol.ol_d_id = o.o_d_id AND ol.ol_o_id = o.o_id WHERE o.o_w_id = {w} AND o.o_d_id = {d} AND \
             o.o_c_id = {customer} ORDER BY o.o_id DESC LIMIT 15;\n"
        );
    }

    fn delivery(&mut self, out: &mut String, w: u64) {
        let carrier = self.rng.range(1, 10);
        out.push_str("BEGIN;\n");
        for d in 1..=self.scale.districts {
            let Some((order, customer, _)) = self.district(w, d).open.pop_front() else {
                continue;
            };
            emit!(
                out,
                "DELETE FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} AND no_o_id = {order};\n"
            );
            emit!(
                out,
                "UPDATE orders SET o_carrier_id = {carrier} WHERE o_w_id = {w} AND o_d_id = {d} AND o_id = {order};\n\
                 UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = {w} AND ol_d_id = {d} AND \
                 ol_o_id = {order};\nUPDATE customer SET c_balance = c_balance + (SELECT SUM(ol_amount) FROM \
                 order_line WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {order}), c_delivery_cnt = \
                 c_delivery_cnt + 1 WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {customer};\n"
            );
        }
        out.push_str("COMMIT;\n");
    }

    fn stock_level(&mut self, out: &mut String, w: u64, d: u64) {
        let threshold = self.rng.range(10, 20);
        let next = self.district(w, d).next_order;
        let from = next.saturating_sub(20);
        emit!(
            out,
            "SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id WHERE \
             ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id >= {from} AND ol_o_id < {next} AND \
             s_quantity < {threshold};\n"
        );
    }
}

fn customer(rng: &mut Rng, out: &mut String, id: u64, d: u64, w: u64) {
    emit!(out, "({id},{d},{w},'");
    rng.text(out, 8, 16);
    out.push_str("','OE','");
    rng.text(out, 6, 16);
    for (low, high) in [(10, 20), (10, 20), (10, 20), (2, 2)] {
        out.push_str("','");
        rng.text(out, low, high);
    }
    out.push_str("','");
    rng.digits(out, 4);
    out.push_str("11111','");
    rng.digits(out, 16);
    let credit = if rng.percent(10) { "BC" } else { "GC" };
    emit!(
        out,
        "',NOW(),'{credit}',50000.00,0.{:04},-10.00,10.00,1,0,'",
        rng.range(0, 5000)
    );
    rng.text(out, 300, 500);
    out.push_str("')");
}
