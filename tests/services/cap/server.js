// Listens on 127.0.0.1 only, and takes SQL so that a test can put records in and change them.
const cds = require('@sap/cds')
const express = require('express')

cds.on('bootstrap', app => {
  const listen = app.listen
  app.listen = (port, done) => listen.call(app, port, '127.0.0.1', done)
  app.post('/sql', express.text({ limit: '10mb' }), async (request, response) => {
    try {
      const db = await cds.connect.to('db')
      for (const statement of JSON.parse(request.body)) await db.run(statement)
      response.sendStatus(204)
    } catch (error) {
      response.status(500).send(String(error))
    }
  })
})

cds.on('served', ({ Shop }) => {
  Shop.after('READ', 'FineOrders', rows => {
    for (const row of [rows].flat())
      if (row?.updated_at) row.updated_at = row.updated_at.replace(/Z(\d+)$/, '$1Z')
  })
})

module.exports = cds.server
