type Address { city : String(50); zip : String(10); }

entity data.Orders {
  key id       : Integer64;
  updated_at   : Timestamp;
  item         : String(100);
  price        : Decimal(15, 2);
  quantity     : Integer;
  paid         : Boolean;
  weight       : Double;
}

// One field of every type that a service can have.
entity data.Things {
  key code     : String(20);
  key part     : Integer;
  ref          : UUID;
  big          : Integer64;
  small        : Int16;
  tiny         : UInt8;
  amount       : Decimal(20, 6);
  free         : Decimal;
  ratio        : Double;
  flag         : Boolean;
  day          : Date;
  clock        : Time;
  second       : DateTime;
  instant      : Timestamp;
  content      : Binary(100);
  address      : Address;
  tags         : many String;
  places       : many Address;
}

// FineOrders shows microseconds, as a database may keep them, while filters compare milliseconds: a time is kept as
// '….123Z456', which sorts between its millisecond and the next, and shown as '….123456Z'.
service Shop @(path: '/odata/v4/shop') {
  @cds.query.limit: { default: 100000, max: 100000 }
  entity Orders as projection on data.Orders;
  @cds.query.limit: { default: 7, max: 7 }
  entity FewOrders as projection on data.Orders;
  entity FineOrders as projection on data.Orders;
  entity Things as projection on data.Things;
}

service Closed @(path: '/odata/v4/closed', requires: 'authenticated-user') {
  entity Orders as projection on data.Orders;
}

service Forbidden @(path: '/odata/v4/forbidden', requires: 'nobody-has-this') {
  entity Orders as projection on data.Orders;
}
