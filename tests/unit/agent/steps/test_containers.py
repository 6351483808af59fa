"""Tests of steps in containers, with the real Apptainer."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from packtrain.agent.environments import StepCommand
from packtrain.agent.environments.apptainer import ApptainerEnvironment
from packtrain.plan import Container, EnvironmentConfig, EnvVar, Mount, Secret
from testbed import apptainer
from tests.support.step_harness import HOST_ENVIRONMENT, StepHarness, make_env_vars, make_step, run_expecting_failure
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    lines = "export FROM_IMAGE=image JOB_VAR=image STEP_VAR=image"
    return apptainer.build_sif(tmp_path_factory.mktemp("image") / "busy box.sif", 'printf "<%s>" "$@"', lines)


@pytest.fixture
def harness(tmp_path):
    host_env = {**HOST_ENVIRONMENT, "PATH": f"{apptainer.apptainer_path().parent}:{HOST_ENVIRONMENT['PATH']}"}
    harness = StepHarness(tmp_path / "with, comma", secrets={"token": "s3cr3t-value"}, host_environment=host_env)
    yield harness
    harness.close()


def test_sandbox_is_mounted_at_its_path(harness, image):
    command = (
        'pwd; ls -l /bin/sh; echo made > "$DEEPSQUARE_OUTPUT/file"; echo K=V >> "$DEEPSQUARE_ENV"; echo $FROM_HOST'
    )
    harness.run(make_step(command, name="in", container=Container(str(image))), make_step("echo $K", name="out"))
    output = harness.read_log("in.out").splitlines()
    assert output[0] == str(harness.sandbox.root)
    assert "busybox" in output[1]
    assert output[2] == "host"
    assert (harness.sandbox.output / "file").read_text() == "made\n"
    assert harness.read_log("out.out") == "V\n"


def test_precedence_of_variables(harness, image):
    command = 'echo "$FROM_IMAGE $JOB_VAR $STEP_VAR $ONLY_JOB"'
    step = make_step(command, name="v", container=Container(str(image)), env=make_env_vars(STEP_VAR="step"))
    harness.run(step, env=make_env_vars(JOB_VAR="job", STEP_VAR="job", ONLY_JOB="job"))
    assert harness.read_log("v.out") == "image image step job\n"


def test_job_environment_applies_without_own_image(harness, image):
    environment = EnvironmentConfig(Container(str(image)), setup="greeting=hello", path=("/opt/tools",))
    harness.run(make_step('echo "$greeting $PATH"; readlink /bin/sh', name="e"), environment=environment)
    output = harness.read_log("e.out").splitlines()
    assert output[0].startswith("hello /opt/tools:/")
    assert output[1] == "busybox"


def test_entrypoint_gets_arguments(harness, image):
    harness.run(make_step("--lr 0.1 'two words'", name="e", shell="ENTRYPOINT", container=Container(str(image))))
    harness.run(make_step("", name="none", container=Container(str(image))))
    assert harness.read_log("e.out") == "<--lr><0.1><two words>"
    assert harness.read_log("none.out") == "<>"


def test_unclosed_quote(harness, image):
    error = run_expecting_failure(
        harness, make_step("it's", name="e", shell="ENTRYPOINT", container=Container(str(image)))
    )
    assert error.kind == "step_failed"
    assert "cannot be split: No closing quotation" in error.detail


def test_home_is_mounted_on_request(harness, image):
    list_home = 'ls -A "$HOME"'
    harness.run(make_step(list_home, name="no", container=Container(str(image))))
    harness.run(make_step(list_home, name="yes", container=Container(str(image), mount_home=True)))
    home = set(os.listdir(Path("~").expanduser()))
    assert home
    assert set(harness.read_log("yes.out").splitlines()) >= home
    assert not set(harness.read_log("no.out").splitlines()) & home


def test_root_is_writable_unless_read_only(harness, image):
    harness.run(make_step("echo x > /new && cat /new", name="rw", container=Container(str(image))))
    assert harness.read_log("rw.out") == "x\n"
    error = run_expecting_failure(
        harness, make_step("echo x > /new", name="ro", container=Container(str(image), read_only=True))
    )
    assert error.kind == "step_failed"
    assert "Read-only file system" in error.detail


@pytest.mark.parametrize("folder", ["/made/in image", "/etc"])
def test_missing_work_dir_is_created_in_the_image(harness, image, folder):
    harness.run(make_step("pwd; echo $0", name="w", container=Container(str(image)), work_dir=folder))
    assert harness.read_log("w.out").splitlines()[0] == folder
    assert not os.path.exists("/made")


def test_mounts(harness, image, tmp_path):
    data = tmp_path / "some data"
    data.mkdir()
    (data / "file").write_text("there\n")
    mounts = (Mount(str(data), "/mnt/ro", "ro"), Mount(str(data), "/mnt/rw", "rw"))
    command = "cat /mnt/ro/file; echo new > /mnt/rw/new; echo no > /mnt/ro/no"
    error = run_expecting_failure(harness, make_step(command, name="m", container=Container(str(image), mounts=mounts)))
    assert "Read-only file system" in error.detail
    assert harness.read_log("m.out") == "there\n"
    assert sorted(os.listdir(data)) == ["file", "new"]


def test_no_secrets_on_command_lines(harness, image):
    token = Secret("token")
    container = Container(str(image), username=token, password=token)
    step = make_step(
        'echo $$; test "$TOKEN" && touch up; until [ -e go ]; do sleep 0.05; done; env',
        name="s",
        container=container,
        env=(EnvVar("TOKEN", token),),
    )
    thread = threading.Thread(target=harness.run, args=(step,))
    thread.start()
    wait_until((harness.sandbox.root / "up").exists)
    lines = command_lines()
    (harness.sandbox.root / "go").touch()
    thread.join()
    assert any(b"busy box.sif" in line for line in lines)
    assert not any(b"s3cr3t-value" in line for line in lines)
    assert "TOKEN=***" in harness.read_log("s.out")
    assert "APPTAINER_DOCKER" not in harness.read_log("s.out")


def command_lines():
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
    return lines


@pytest.mark.parametrize(
    ("name", "output"),
    [("/no/such/image.sif", "no such file or directory"), ("docker://127.0.0.1:9/x:y", "connection refused")],
)
def test_missing_image(harness, name, output):
    error = run_expecting_failure(harness, make_step("true", name="c", container=Container(name)))
    assert error.kind == "container_failed"
    assert error.detail.startswith('the container of step "c" did not start: ')
    assert output in error.detail


def test_program_fails_inside_container(harness, image):
    error = run_expecting_failure(
        harness, make_step("echo my fault >&2; exit 255", name="c", container=Container(str(image)))
    )
    assert error.kind == "step_failed"
    assert error.detail == 'step "c" ended with exit code 255; last line on stderr: my fault'


def test_machine_without_apptainer(tmp_path, image):
    harness = StepHarness(tmp_path, host_environment={"PATH": str(tmp_path)})
    error = run_expecting_failure(harness, make_step("true", container=Container(str(image))))
    assert error.kind == "container_failed"
    assert "there is no apptainer on this machine" in error.detail
    harness.close()


def test_stop_reaches_program_inside(harness, image):
    command = "trap 'echo saved > trace; exit 0' TERM; touch up; while :; do sleep 0.05; done"
    threading.Thread(
        target=lambda: (
            wait_until((harness.sandbox.root / "up").exists),
            harness.stop_request.request("terminated", "T"),
        )
    ).start()
    assert (
        run_expecting_failure(harness, make_step(command, name="t", container=Container(str(image)))).kind
        == "terminated"
    )
    assert harness.read_trace() == ["saved"]


def test_agent_zip_is_mounted_and_gpus_enabled(harness, image, tmp_path):
    agent_zip = tmp_path / "agent.pyz"
    agent_zip.write_text("zip")
    environment = ApptainerEnvironment(
        Container(str(image)), harness.sandbox, 2, agent_zip, harness.context.secrets.resolve_secret
    )
    program = environment.wrap(StepCommand(("true",), harness.sandbox.root, harness.host_environment, {}))
    assert "--nv" in program.argv
    assert f"type=bind,source={agent_zip},destination={agent_zip},ro" in program.argv


@pytest.fixture(scope="module")
def image_with_pythonpath(tmp_path_factory):
    """Build an image that sets PYTHONPATH."""
    lines = "export PYTHONPATH=/image/lib"
    return apptainer.build_sif(tmp_path_factory.mktemp("image") / "own.sif", 'printf "<%s>" "$PYTHONPATH"', lines)


def read_pythonpath(harness, image, agent_zip, host_env, step_env, entrypoint=False):
    environment = ApptainerEnvironment(
        Container(str(image)), harness.sandbox, 0, agent_zip, harness.context.secrets.resolve_secret
    )
    argv = () if entrypoint else ("/bin/sh", "-c", 'printf "<%s>" "$PYTHONPATH"')
    variables = {**harness.host_environment, **host_env, "APPTAINER_NO_EVAL": "1"}
    program = environment.wrap(StepCommand(argv, harness.sandbox.root, variables, step_env, use_entrypoint=entrypoint))
    return subprocess.check_output(program.argv, env=program.env, cwd=program.work_dir, text=True)


@pytest.mark.parametrize("entrypoint", [False, True])
def test_agent_zip_precedes_pythonpath_of_image(harness, image, image_with_pythonpath, tmp_path, entrypoint):
    agent_zip = tmp_path / "agent $HOME.pyz"
    agent_zip.write_text("zip")
    host_env = {"PYTHONPATH": f"{agent_zip}:/outside"}
    assert read_pythonpath(harness, image_with_pythonpath, agent_zip, {}, {}, entrypoint) == f"<{agent_zip}:/image/lib>"
    assert (
        read_pythonpath(harness, image_with_pythonpath, agent_zip, host_env, {}, entrypoint)
        == f"<{agent_zip}:/image/lib>"
    )
    if not entrypoint:
        assert read_pythonpath(harness, image, agent_zip, {"PYTHONPATH": str(agent_zip)}, {}) == f"<{agent_zip}>"
        assert read_pythonpath(harness, image, agent_zip, host_env, {}) == f"<{agent_zip}:/outside>"
        assert (
            read_pythonpath(harness, image_with_pythonpath, agent_zip, host_env, {"PYTHONPATH": "/step"}) == "</step>"
        )


def test_special_characters_in_values(harness, image):
    """Apptainer passes them through a shell."""
    special = r"""a $HOME `echo no` $(echo no) \ \$b "q" 'r' \" ü"""
    harness.run(
        make_step('printf "%s" "$NASTY"', name="n", container=Container(str(image)), env=make_env_vars(NASTY=special))
    )
    assert harness.read_log("n.out") == special


# an image from a registry, with a password


class Registry(http.server.BaseHTTPRequestHandler):
    """A minimal registry that holds one image, as `apptainer push … oras://` stores it."""

    content = None
    authorization = ""

    def do_GET(self):
        self.do_HEAD(body=True)

    def do_HEAD(self, body: bool = False):
        if self.headers.get("Authorization") != self.authorization:
            return self.respond(401, "text/plain", b"", body)
        kind, data = self.content.get(self.path, ("text/plain", b""))
        return self.respond(200 if self.path in self.content else 404, kind, data, body)

    def respond(self, status: int, kind: str, data: bytes, body: bool):
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="packtrain"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", digest(data))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *args):
        pass


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def registry(image, tmp_path):
    """Yield the address of the image and the certificate to trust."""
    sif, config = image.read_bytes(), b"{}"
    manifest_type = "application/vnd.oci.image.manifest.v1+json"

    def entry(kind, data, **rest):
        return {"mediaType": kind, "digest": digest(data), "size": len(data), **rest}

    layer = entry(
        "application/vnd.sylabs.sif.layer.v1.sif", sif, annotations={"org.opencontainers.image.title": "image.sif"}
    )
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": entry("application/vnd.sylabs.sif.config.v1+json", config),
            "layers": [layer],
        }
    ).encode()
    base = "/v2/lab/image"
    octets = "application/octet-stream"
    Registry.content = {
        "/v2/": ("application/json", b"{}"),
        f"{base}/manifests/1": (manifest_type, manifest),
        f"{base}/manifests/{digest(manifest)}": (manifest_type, manifest),
        f"{base}/blobs/{digest(sif)}": (octets, sif),
        f"{base}/blobs/{digest(config)}": (octets, config),
    }
    Registry.authorization = "Basic " + base64.b64encode(b"me:s3cr3t-value").decode()
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"oras://127.0.0.1:{server.server_port}/lab/image:1", certificate
    server.shutdown()
    server.server_close()


def test_image_from_registry_with_password(harness, registry):
    address, certificate = registry
    trust = make_env_vars(SSL_CERT_FILE=str(certificate))
    good = Container(address, username="me", password=Secret("token"))
    harness.run(make_step("readlink /bin/sh", name="pulled", container=good), env=trust)
    assert harness.read_log("pulled.out") == "busybox\n"
    assert (harness.sandbox.root / ".apptainer").is_dir()


def test_registry_refuses_password(harness, registry):
    address, certificate = registry
    trust = make_env_vars(SSL_CERT_FILE=str(certificate))
    error = run_expecting_failure(
        harness, make_step("true", name="c", container=Container(address, username="me", password="wrong")), env=trust
    )
    assert error.kind == "container_failed"
