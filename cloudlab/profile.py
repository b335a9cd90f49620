# SPDX-License-Identifier: MIT
"""Verbena on CloudLab: nodes in one LAN, on which Verbena is installed, built, checked and measured.

Instructions:
Wait until the start-up service of all nodes has finished (the list view shows it). Then read the readiness page on
node0:

    cat /local/verbena/ready.txt

It says for each node whether it is ready, what `verbena doctor` found between all pairs, how fast the first allreduce
was, and what to type next. The log is /local/verbena/startup.log. docs/cloudlab.md explains all of it.
"""
# The portal runs this file with its own copy of geni-lib. The file also runs under Python 2, which the geni-lib of the
# Python package index was written for.

import re

import geni.portal as portal
import geni.rspec.emulab  # noqa: F401, adds setNoInterSwitchLinks to links
import geni.rspec.igext  # noqa: F401, adds Blockstore to nodes
import geni.rspec.pg as pg

# Hardware types: site, speeds of the ports for experiments in Gbit/s, true if the ports can do RDMA, the card.
TYPES = {
    "c6525-25g": ("Utah", (25,), True, "ConnectX-5"),
    "c6525-100g": ("Utah", (25, 100), True, "ConnectX-5"),
    "d6515": ("Utah", (25, 100), True, "BCM57414 and ConnectX-5"),
    "xl170": ("Utah", (25,), True, "ConnectX-4 Lx"),
    "m510": ("Utah", (10,), True, "ConnectX-3 Pro"),
    "r650": ("Clemson", (100,), True, "ConnectX-5"),
    "r6525": ("Clemson", (100,), True, "ConnectX-5"),
    "r7525": ("Clemson", (25, 100), True, "ConnectX-5 and BlueField-2"),
    "c6420": ("Clemson", (10,), False, "Intel X710"),
    "c6320": ("Clemson", (10,), False, "Intel 82599"),
    "sm110p": ("Wisconsin", (100,), True, "ConnectX-6 Dx"),
    "d7525": ("Wisconsin", (200,), True, "ConnectX-6"),
    "c240g5": ("Wisconsin", (25,), True, "ConnectX-6 Lx"),
    "c220g5": ("Wisconsin", (10,), False, "Intel X710"),
    "c220g2": ("Wisconsin", (10,), False, "Intel 82599"),
    "r320": ("Apt", (10,), True, "ConnectX-3"),
    "c6220": ("Apt", (10,), False, "Intel X520"),
}
ORDER = ["c6525-25g", "c6525-100g", "d6515", "xl170", "m510", "r650", "r6525", "r7525", "c6420", "c6320", "sm110p",
         "d7525", "c240g5", "c220g5", "c220g2", "r320", "c6220"]
SPEEDS = [1, 10, 25, 100, 200]
IMAGE = "urn:publicid:IDN+emulab.net+image+emulab-ops//"
IMAGES = [
    (IMAGE + "UBUNTU24-64-STD", "Ubuntu 24.04"),
    (IMAGE + "UBUNTU22-64-STD", "Ubuntu 22.04"),
    (IMAGE + "DEBIAN12-64-STD", "Debian 12"),
]
TRANSPORTS = [
    ("roce", "RoCE: RDMA by the network card"),
    ("soft-roce", "soft-RoCE: RDMA by the kernel, on any card"),
    ("tcp", "TCP"),
]
MAX_NODES = 64
MAX_SCRATCH_GB = 1000
URL = re.compile(r"^(https|git|ssh)://[A-Za-z0-9._~/@:+-]+$")
REF = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")


def type_label(name):
    site, speeds, rdma, card = TYPES[name]
    ports = " and ".join("%d" % speed for speed in speeds)
    return "%s (%s): %s Gbit/s, %s%s" % (name, site, ports, card, "" if rdma else ", no RDMA")


def define_parameters(context):
    kind = portal.ParameterType
    context.defineParameter("nodes", "Number of nodes", kind.INTEGER, 3,
                            longDescription="1 to %d. They get the names node0, node1 and so on." % MAX_NODES)
    context.defineParameter("type", "Hardware type", kind.NODETYPE, ORDER[0],
                            [(name, type_label(name)) for name in ORDER])
    context.defineParameter("speed", "Link speed", kind.INTEGER, 0,
                            [(0, "the fastest port")] + [(speed, "%d Gbit/s" % speed) for speed in SPEEDS],
                            longDescription="A speed that the card does not have is made by limiting a faster port in "
                                            "software. This works for TCP only.")
    context.defineParameter("transport", "Transport", kind.STRING, "roce", TRANSPORTS)
    context.defineParameter("sameSwitch", "All nodes at the same switch", kind.BOOLEAN, True,
                            longDescription="Without it there may be a shared link between two switches on the way. "
                                            "With it there may be too few free nodes.")
    context.defineParameter("image", "Disk image", kind.IMAGE, IMAGES[0], IMAGES)
    context.defineParameter("scratch", "Temporary file system in GB", kind.INTEGER, 0, advanced=True,
                            longDescription="Mounted at /scratch on each node, for data; 0: none. Its contents are "
                                            "lost at the end of the experiment.")
    context.defineParameter("repository", "Repository of Verbena", kind.STRING, "",
                            longDescription="URL for git clone. Only a profile that was made from a git repository may "
                                            "leave it empty: CloudLab clones that one to /local/repository.")
    context.defineParameter("ref", "Branch or tag", kind.STRING, "", advanced=True,
                            longDescription="Of the repository above; empty: its default branch.")


def check_speed(params):
    """Returns what is wrong with the link speed, or None."""
    _, speeds, _, card = TYPES[params.type]
    if params.speed == 0 or params.speed in speeds:
        return None
    if params.speed > max(speeds):
        return "%s has no port of %d Gbit/s (%s, up to %d Gbit/s): choose a lower link speed or another type" % (
            params.type, params.speed, card, max(speeds))
    if params.transport != "tcp":
        return "%s has no port of %d Gbit/s, and RDMA passes by a limit in software: choose %s Gbit/s, or TCP" % (
            params.type, params.speed, " or ".join(str(speed) for speed in speeds))
    return None


def check_transport(params):
    """Returns what is wrong with the transport, or None."""
    _, _, rdma, card = TYPES[params.type]
    if params.transport == "roce" and not rdma:
        return "%s has no card that can do RDMA (%s): choose soft-RoCE, TCP, or another type" % (params.type, card)
    return None


def check_source(params):
    """Returns what is wrong with repository or ref, and the parameter, or None. Both end up in a shell's command."""
    if params.repository and not URL.match(params.repository):
        return "must be a URL such as https://host/verbena.git", "repository"
    if params.ref and not params.repository:
        return "needs a repository; the profile's own has the branch that was chosen for the profile", "ref"
    if params.ref and not REF.match(params.ref):
        return "must be the name of a branch or tag", "ref"
    return None


def check_parameters(context, params):
    def refuse(text, *names):
        context.reportError(portal.ParameterError(text, list(names)))

    if not 1 <= params.nodes <= MAX_NODES:
        refuse("must be from 1 to %d" % MAX_NODES, "nodes")
    if not 0 <= params.scratch <= MAX_SCRATCH_GB:
        refuse("must be from 0 to %d" % MAX_SCRATCH_GB, "scratch")
    wrong = check_speed(params)
    if wrong:
        refuse(wrong, "speed", "type")
    wrong = check_transport(params)
    if wrong:
        refuse(wrong, "transport", "type")
    wrong = check_source(params)
    if wrong:
        refuse(*wrong)
    context.verifyParameters()


def start_command(params, k):
    """The command of node k. It runs at every boot."""
    folder = "/local/repository"
    clone = ""
    if params.repository:
        folder = "/local/verbena-source"
        branch = "--branch '%s' " % params.ref if params.ref else ""
        owner = "$(id -u):$(id -g)"
        clone = ("sudo mkdir -p %s && sudo chown %s %s && { [ -d %s/.git ] || "
                 "timeout 600 git clone --depth 1 %s'%s' %s; } && " % (
                     folder, owner, folder, folder, branch, params.repository, folder))
    return "%s%s/cloudlab/startup.sh --node %d --nodes %d --transport %s" % (
        clone, folder, k, params.nodes, params.transport)


def make_node(request, params, k):
    node = request.RawPC("node%d" % k)
    node.hardware_type = params.type
    node.disk_image = params.image
    if params.scratch:
        store = node.Blockstore("scratch%d" % k, "/scratch")
        store.size = "%dGB" % params.scratch
    node.addService(pg.Execute(shell="bash", command=start_command(params, k)))
    return node


def make_lan(request, params, nodes):
    lan = request.LAN("lan0")
    speed = params.speed or max(TYPES[params.type][1])
    lan.bandwidth = speed * 1000 * 1000  # in kbit/s
    if speed in TYPES[params.type][1]:
        lan.setNoBandwidthShaping()  # the port has this speed; a limit in software would only slow it
    if params.sameSwitch:
        lan.setNoInterSwitchLinks()
    for k, node in enumerate(nodes):
        port = node.addInterface("if0")
        port.addAddress(pg.IPv4Address("10.10.1.%d" % (k + 1), "255.255.255.0"))
        lan.addInterface(port)


def main():
    context = portal.Context()
    define_parameters(context)
    params = context.bindParameters()
    check_parameters(context, params)
    request = context.makeRequestRSpec()
    nodes = [make_node(request, params, k) for k in range(params.nodes)]
    if params.nodes > 1:
        make_lan(request, params, nodes)
    context.printRequestRSpec(request)


main()
