-- A shop: 3 schemas, some 40 tables, keys, comments, a view.
CREATE SCHEMA sales;
CREATE SCHEMA warehouse;
CREATE SCHEMA people;
COMMENT ON SCHEMA sales IS 'What is sold, to whom, and for how much';
COMMENT ON SCHEMA warehouse IS 'Where things lie and how they move';
COMMENT ON SCHEMA people IS 'Those who work here';

CREATE TABLE sales.country (code char(2) PRIMARY KEY, name text NOT NULL);
CREATE TABLE sales.currency (code char(3) PRIMARY KEY, name text NOT NULL, decimals smallint NOT NULL DEFAULT 2);
CREATE TABLE sales.customer (
    customer_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email varchar(320) NOT NULL UNIQUE,
    full_name text NOT NULL,
    country_code char(2) REFERENCES sales.country,
    created_at timestamptz NOT NULL DEFAULT now());
COMMENT ON TABLE sales.customer IS 'Everybody who ever bought something';
COMMENT ON COLUMN sales.customer.email IS 'Verified before the first order';
CREATE TABLE sales.address (
    address_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES sales.customer,
    street text NOT NULL, city text NOT NULL, postcode varchar(12), country_code char(2) REFERENCES sales.country);
CREATE TABLE sales.category (category_id int PRIMARY KEY, parent_id int REFERENCES sales.category, name text NOT NULL);
CREATE TABLE sales.brand (brand_id int PRIMARY KEY, name text NOT NULL, country_code char(2) REFERENCES sales.country);
CREATE TABLE sales.product (
    product_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sku varchar(40) NOT NULL UNIQUE,
    name text NOT NULL,
    category_id int REFERENCES sales.category,
    brand_id int REFERENCES sales.brand,
    weight_grams int CHECK (weight_grams > 0),
    attributes jsonb NOT NULL DEFAULT '{}',
    discontinued_on date);
COMMENT ON TABLE sales.product IS 'Things that can be bought';
CREATE TABLE sales.product_image (product_id bigint REFERENCES sales.product, position int, url text NOT NULL, PRIMARY KEY (product_id, position));
CREATE TABLE sales.tag (tag_id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE sales.product_tag (product_id bigint REFERENCES sales.product, tag_id int REFERENCES sales.tag, PRIMARY KEY (product_id, tag_id));
CREATE TABLE sales.price_list (price_list_id int PRIMARY KEY, name text NOT NULL, currency_code char(3) REFERENCES sales.currency);
CREATE TABLE sales.price (
    price_list_id int REFERENCES sales.price_list,
    product_id bigint REFERENCES sales.product,
    valid_from date NOT NULL,
    amount numeric(12, 2) NOT NULL,
    PRIMARY KEY (price_list_id, product_id, valid_from));
COMMENT ON COLUMN sales.price.amount IS 'Without tax';
CREATE TABLE sales.voucher (code varchar(20) PRIMARY KEY, percent numeric(5, 2), valid_until date);
CREATE TABLE sales.cart (cart_id uuid PRIMARY KEY, customer_id bigint REFERENCES sales.customer, updated_at timestamptz);
CREATE TABLE sales.cart_item (cart_id uuid REFERENCES sales.cart, product_id bigint REFERENCES sales.product, quantity int NOT NULL, PRIMARY KEY (cart_id, product_id));
CREATE TABLE sales."order" (
    order_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES sales.customer,
    voucher_code varchar(20) REFERENCES sales.voucher,
    placed_at timestamptz NOT NULL DEFAULT now(),
    state varchar(12) NOT NULL DEFAULT 'new');
CREATE TABLE sales.order_line (
    order_id bigint REFERENCES sales."order", line_number int, product_id bigint NOT NULL REFERENCES sales.product,
    quantity int NOT NULL, unit_price numeric(12, 2) NOT NULL, PRIMARY KEY (order_id, line_number));
CREATE TABLE sales.payment (payment_id uuid PRIMARY KEY, order_id bigint REFERENCES sales."order", method varchar(20), amount numeric(12, 2), paid_at timestamptz);
CREATE TABLE sales.invoice (invoice_number varchar(20) PRIMARY KEY, order_id bigint REFERENCES sales."order", issued_on date NOT NULL);
CREATE TABLE sales.refund (refund_id uuid PRIMARY KEY, payment_id uuid REFERENCES sales.payment, amount numeric(12, 2), reason text);
CREATE TABLE sales.review (product_id bigint REFERENCES sales.product, customer_id bigint REFERENCES sales.customer, stars smallint, body text, PRIMARY KEY (product_id, customer_id));
CREATE VIEW sales.open_order AS SELECT order_id, customer_id, placed_at FROM sales."order" WHERE state <> 'done';
COMMENT ON VIEW sales.open_order IS 'Orders that somebody still has to do something about';

CREATE TABLE warehouse.site (site_id int PRIMARY KEY, name text NOT NULL, country_code char(2) REFERENCES sales.country);
CREATE TABLE warehouse.zone (zone_id int PRIMARY KEY, site_id int NOT NULL REFERENCES warehouse.site, name text);
CREATE TABLE warehouse.bin (bin_id int PRIMARY KEY, zone_id int NOT NULL REFERENCES warehouse.zone, label varchar(20) NOT NULL);
CREATE TABLE warehouse.stock (bin_id int REFERENCES warehouse.bin, product_id bigint REFERENCES sales.product, quantity int NOT NULL DEFAULT 0, PRIMARY KEY (bin_id, product_id));
CREATE TABLE warehouse.supplier (supplier_id int PRIMARY KEY, name text NOT NULL, vat_number varchar(20));
CREATE TABLE warehouse.purchase (purchase_id bigint PRIMARY KEY, supplier_id int REFERENCES warehouse.supplier, ordered_on date);
CREATE TABLE warehouse.purchase_line (purchase_id bigint REFERENCES warehouse.purchase, product_id bigint REFERENCES sales.product, quantity int, PRIMARY KEY (purchase_id, product_id));
CREATE TABLE warehouse.carrier (carrier_id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE warehouse.shipment (shipment_id bigint PRIMARY KEY, order_id bigint REFERENCES sales."order", carrier_id int REFERENCES warehouse.carrier, shipped_at timestamptz);
CREATE TABLE warehouse.shipment_event (shipment_id bigint REFERENCES warehouse.shipment, at timestamptz, what text NOT NULL, PRIMARY KEY (shipment_id, at));
CREATE TABLE warehouse.stocktake (stocktake_id int PRIMARY KEY, site_id int REFERENCES warehouse.site, taken_on date);
CREATE TABLE warehouse.parcel_size (code varchar(4) PRIMARY KEY, max_grams int);

CREATE TABLE people.department (department_id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE people.employee (employee_id int PRIMARY KEY, department_id int REFERENCES people.department, full_name text NOT NULL, hired_on date, salary numeric(10, 2));
COMMENT ON COLUMN people.employee.salary IS 'Per month, before tax';
CREATE TABLE people.shift (employee_id int REFERENCES people.employee, begins timestamptz, ends timestamptz, PRIMARY KEY (employee_id, begins));
CREATE TABLE people.absence (employee_id int REFERENCES people.employee, day date, reason text, PRIMARY KEY (employee_id, day));
CREATE TABLE people.skill (skill_id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE people.employee_skill (employee_id int REFERENCES people.employee, skill_id int REFERENCES people.skill, PRIMARY KEY (employee_id, skill_id));
CREATE TABLE people.badge (badge_number int PRIMARY KEY, employee_id int REFERENCES people.employee);
CREATE TABLE people.note_0 (note_id int PRIMARY KEY, body text);
CREATE TABLE people.campaign_0 (campaign_id int PRIMARY KEY, title text);
