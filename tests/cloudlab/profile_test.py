# SPDX-License-Identifier: MIT
"""Runs cloudlab/profile.py as the portal does, once for every combination of parameters, and checks each request.

The facts about hardware are written down here a second time, in another form, so that a slip in one of the two shows.
"""

import contextlib
import io
import itertools
import json
import os
import re
import sys
import tempfile
import types

import geni.portal as portal
from lxml import etree

with open(sys.argv[1]) as source:
    CODE = compile(source.read(), sys.argv[1], "exec")
RSPEC = "{http://www.geni.net/resources/rspec/3}"
EMULAB = "{http://www.protogeni.net/resources/rspec/ext/emulab/1}"
PORTS = {10: "m510 c6420 c6320 c220g5 c220g2 r320 c6220", 25: "c6525-25g c6525-100g d6515 xl170 r7525 c240g5",
         100: "c6525-100g d6515 r650 r6525 r7525 sm110p", 200: "d7525"}
NO_RDMA = "c6420 c6320 c220g5 c220g2 c6220".split()
TYPES = sorted(set(" ".join(PORTS.values()).split()))
IMAGES = ["urn:publicid:IDN+emulab.net+image+emulab-ops//%s-64-STD" % name for name in
          ("UBUNTU24", "UBUNTU22", "DEBIAN12")]
DEFAULTS = {"nodes": 3, "type": "c6525-25g", "speed": 0, "transport": "roce", "sameSwitch": True, "image": IMAGES[0],
            "scratch": 0, "repository": "", "ref": ""}
# What version 3 of the request format allows: for each element its children, and its attributes. A * marks those that must
# be there. Elements of other namespaces are extensions, which may be anywhere.
GRAMMAR = {
    "rspec": ("node link", "type* generated generated_by expires"),
    "node": ("relation location services interface hardware_type sliver_type",
             "client_id* component_id component_manager_id component_name exclusive colocate"),
    "sliver_type": ("disk_image", "name*"),
    "disk_image": ("", "name* os version description"),
    "hardware_type": ("", "name*"),
    "services": ("login install execute", ""),
    "execute": ("", "shell* command*"),
    "interface": ("ip", "client_id* component_id"),
    "ip": ("", "address* netmask type"),
    "link": ("property link_type interface_ref component_manager component_hop", "client_id*"),
    "interface_ref": ("", "client_id*"),
    "link_type": ("", "name* class"),
    "property": ("", "source_id* dest_id* capacity latency packet_loss"),
}
failures = []


def schema():
    """The schema of the format, if VB_RSPEC_SCHEMA names a copy of request.xsd."""
    path = os.environ.get("VB_RSPEC_SCHEMA")
    return etree.XMLSchema(etree.parse(path)) if path else None


SCHEMA = schema()


def run_profile():
    module = types.ModuleType("__main__", CODE.co_consts[0])  # geni-lib takes the text of the page from its docstring
    sys.modules["__main__"] = module
    exec(CODE, module.__dict__)


def render(folder, **values):
    """Runs the profile. Returns the exit code, the errors and the request as text, or None."""
    params, out = os.path.join(folder, "params.json"), os.path.join(folder, "request.xml")
    with open(params, "w") as file:
        json.dump(dict(DEFAULTS, **values), file)
    if os.path.exists(out):
        os.unlink(out)
    os.environ.update(GENILIB_PORTAL_MODE="1", GENILIB_PORTAL_PARAMS_PATH=params, GENILIB_PORTAL_REQUEST_PATH=out)
    portal.Context._instance, portal.Context._initialized = None, False  # a new process of the portal
    errors = io.StringIO()
    code = 0
    with contextlib.redirect_stderr(errors):
        try:
            run_profile()
        except SystemExit as end:
            code = end.code
    text = open(out, "rb").read() if os.path.exists(out) else None
    return code, errors.getvalue(), text


def ports(kind):
    return [speed for speed, types in PORTS.items() if kind in types.split()]


def legal(p):
    """True if the profile must accept these parameters."""
    if p["transport"] == "roce" and p["type"] in NO_RDMA:
        return False
    if p["speed"] in (0, *ports(p["type"])):
        return True
    return p["speed"] < max(ports(p["type"])) and p["transport"] == "tcp"


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError("%s: %r, expected %r" % (what, got, wanted))


def check_node(node, k, p):
    expect("name", node.get("client_id"), "node%d" % k)
    expect("exclusive", node.get("exclusive"), "true")
    expect("type", [e.get("name") for e in node.iter(RSPEC + "hardware_type")], [p["type"]])
    expect("image", [e.get("name") for e in node.iter(RSPEC + "disk_image")], [p["image"]])
    stores = [(e.get("mountpoint"), e.get("size"), e.get("class")) for e in node.iter(EMULAB + "blockstore")]
    expect("file systems", stores, [("/scratch", "%dGB" % p["scratch"], "local")] if p["scratch"] else [])
    services = list(node.find(RSPEC + "services"))
    expect("services", [(e.tag, e.get("shell")) for e in services], [(RSPEC + "execute", "bash")])
    command = services[0].get("command")
    tail = "/cloudlab/startup.sh --node %d --nodes %d --transport %s" % (k, p["nodes"], p["transport"])
    expect("end of the command", command[-len(tail):], tail)
    expect("clone", "git clone" in command, bool(p["repository"]))
    addresses = [(e.get("address"), e.get("netmask")) for e in node.iter(RSPEC + "ip")]
    expect("addresses", addresses, [("10.10.1.%d" % (k + 1), "255.255.255.0")] if p["nodes"] > 1 else [])


def check_link(link, p):
    names = ["node%d:if0" % k for k in range(p["nodes"])]
    expect("ends of the link", [e.get("client_id") for e in link.iter(RSPEC + "interface_ref")], names)
    speed = p["speed"] or max(ports(p["type"]))
    capacities = [(e.get("source_id"), e.get("capacity")) for e in link.iter(RSPEC + "property")]
    expect("capacities", capacities, [(name, str(speed * 1000000)) for name in names])
    expect("same switch", [e.get("allow") for e in link.iter(EMULAB + "interswitch")],
           ["false"] if p["sameSwitch"] else [])
    expect("limited in software", not list(link.iter(EMULAB + "force_nobwshaping")), speed not in ports(p["type"]))


def check_grammar(element):
    name = etree.QName(element).localname
    children, attributes = (part.split() for part in GRAMMAR[name])
    own = [a for a in element.attrib if not a.startswith("{")]
    expect("attributes that %s must have" % name, [a for a in attributes if a.endswith("*") and a[:-1] not in own], [])
    expect("unknown attributes of " + name, [a for a in own if a not in attributes and a + "*" not in attributes], [])
    for child in element:
        if not child.tag.startswith(RSPEC):
            continue
        expect("%s in %s" % (child.tag, name), etree.QName(child).localname in children, True)
        check_grammar(child)


def check_request(text, p):
    root = etree.fromstring(text)
    check_grammar(root)
    if SCHEMA is not None:
        expect("schema", SCHEMA.validate(root) or str(SCHEMA.error_log.last_error), True)
    expect("root", (root.tag, root.get("type")), (RSPEC + "rspec", "request"))
    nodes = root.findall(RSPEC + "node")
    expect("nodes", len(nodes), p["nodes"])
    for k, node in enumerate(nodes):
        check_node(node, k, p)
    links = root.findall(RSPEC + "link")
    expect("links", len(links), 1 if p["nodes"] > 1 else 0)
    for link in links:
        check_link(link, p)
    ids = [e.get("client_id") for e in root.iter(RSPEC + "node", RSPEC + "interface", RSPEC + "link")]
    expect("names that occur twice", len(ids) - len(set(ids)), 0)


def check_refusal(code, errors, p):
    """A refusal names the parameters and says what to choose instead."""
    expect("exit code", code > 100, True)
    for error in json.loads(errors):
        expect("error names parameters", set(error["params"]) <= set(p) and len(error["params"]) > 0, True)
        expect("error says what to choose", "choose" in error["message"], True)


def all_combinations(folder):
    keys = ("nodes", "type", "speed", "transport", "sameSwitch", "image", "scratch")
    values = ((1, 2, 3, 64), TYPES, (0, 1, 10, 25, 100, 200), ("roce", "soft-roce", "tcp"), (True, False), IMAGES,
              (0, 100))
    counts = {True: 0, False: 0}
    for combination in itertools.product(*values):
        p = dict(DEFAULTS, **dict(zip(keys, combination)))
        if p["nodes"] == 64 and (p["image"] != IMAGES[0] or p["scratch"] or not p["sameSwitch"]):
            continue  # 64 nodes take long to render, and these parameters do the same to each node
        code, errors, text = render(folder, **p)
        try:
            expect("accepted", (code == 0, text is not None), (legal(p), legal(p)))
            if code == 0:
                check_request(text, p)
            else:
                check_refusal(code, errors, p)
        except AssertionError as wrong:
            failures.append("%s: %s %s" % (combination, wrong, errors))
        counts[code == 0] += 1
    print("%d combinations rendered, %d refused" % (counts[True], counts[False]))


def refused(folder, part, name, **values):
    code, errors, text = render(folder, **values)
    if code == 0 or text is not None or part not in errors or '"%s"' % name not in errors:
        failures.append("%s: exit %s, %s" % (values, code, errors or "no error"))


def single_values(folder):
    for nodes in (0, -1, 65):
        refused(folder, "must be from 1 to 64", "nodes", nodes=nodes)
    for scratch in (-1, 1001):
        refused(folder, "must be from 0 to 1000", "scratch", scratch=scratch)
    refused(folder, "Illegal value", "type", type="x1")
    refused(folder, "Illegal value", "speed", speed=7)
    refused(folder, "Illegal value", "transport", transport="rdma")
    refused(folder, "Could not coerce", "nodes", nodes="three")
    refused(folder, "c6525-25g has no port of 100 Gbit/s (ConnectX-5, up to 25 Gbit/s)", "speed", speed=100)
    refused(folder, "c220g5 has no card that can do RDMA", "transport", type="c220g5")
    refused(folder, "RDMA passes by a limit in software", "speed", speed=10)
    for url in ("https://h/v.git; reboot", "file:///etc", "https://h/$(id)", "https://h/'", "v.git"):
        refused(folder, "must be a URL", "repository", repository=url)
    refused(folder, "must be the name of a branch", "ref", repository="https://h/v.git", ref="--upload-pack=x")
    refused(folder, "needs a repository", "ref", ref="main")
    p = dict(DEFAULTS, repository="https://example.org/verbena.git", ref="v1.0")
    code, errors, text = render(folder, **p)
    command = etree.fromstring(text).find(".//" + RSPEC + "execute").get("command") if code == 0 else errors
    if not re.search(r"timeout 600 git clone --depth 1 --branch 'v1.0' 'https://example.org/verbena.git' /local", command):
        failures.append("clone: %s" % command)


def main():
    with tempfile.TemporaryDirectory() as folder:
        single_values(folder)
        all_combinations(folder)
    for failure in failures[:20]:
        print("FAIL:", failure)
    print("%d failures" % len(failures))
    sys.stdout.flush()
    os._exit(1 if failures else 0)  # each run of the profile has left an exit handler that asks for parameters


main()
