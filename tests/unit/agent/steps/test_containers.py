"""Steps in containers, with the real Apptainer."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest

from packtrain.agent.environments import StepCommand
from packtrain.agent.environments.apptainer import ApptainerEnvironment
from packtrain.errors import FailedError
from packtrain.plan import Container, EnvironmentConfig, EnvVar, Mount, Secret
from testbed import apptainer
from tests.support.step_harness import HOST_ENVIRONMENT, StepHarness, make_env_vars, make_step

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    lines = "export FROM_IMAGE=image JOB_VAR=image STEP_VAR=image"
    return apptainer.build_sif(tmp_path_factory.mktemp("image") / "busy box.sif", 'printf "<%s>" "$@"', lines)


@pytest.fixture
def bench(tmp_path):
    host_env = {**HOST_ENVIRONMENT, "PATH": f"{apptainer.apptainer_path().parent}:{HOST_ENVIRONMENT['PATH']}"}
    made = StepHarness(tmp_path / "with, comma", secrets={"token": "s3cr3t-value"}, host_environment=host_env)
    yield made
    made.close()


def fails(bench, step, **job):
    with pytest.raises(FailedError) as caught:
        bench.run(step, **job)
    return caught.value


def test_a_step_runs_in_its_image_with_the_sandbox_at_its_own_path(bench, image):
    command = (
        'pwd; ls -l /bin/sh; echo made > "$DEEPSQUARE_OUTPUT/file"; echo K=V >> "$DEEPSQUARE_ENV"; echo $FROM_HOST'
    )
    bench.run(make_step(command, name="in", container=Container(str(image))), make_step("echo $K", name="out"))
    said = bench.read_log("in.out").splitlines()
    assert said[0] == str(bench.sandbox.root)
    assert "busybox" in said[1]
    assert said[2] == "host"
    assert (bench.sandbox.output / "file").read_text() == "made\n"
    assert bench.read_log("out.out") == "V\n"


def test_precedence_of_variables(bench, image):
    command = 'echo "$FROM_IMAGE $JOB_VAR $STEP_VAR $ONLY_JOB"'
    step = make_step(command, name="v", container=Container(str(image)), env=make_env_vars(STEP_VAR="step"))
    bench.run(step, env=make_env_vars(JOB_VAR="job", STEP_VAR="job", ONLY_JOB="job"))
    assert bench.read_log("v.out") == "image image step job\n"


def test_the_jobs_environment_surrounds_steps_that_name_no_image(bench, image):
    around = EnvironmentConfig(Container(str(image)), setup="greeting=hello", path=("/opt/tools",))
    bench.run(make_step('echo "$greeting $PATH"; readlink /bin/sh', name="e"), environment=around)
    said = bench.read_log("e.out").splitlines()
    assert said[0].startswith("hello /opt/tools:/")
    assert said[1] == "busybox"


def test_the_entrypoint_gets_the_command_as_arguments(bench, image):
    bench.run(make_step("--lr 0.1 'two words'", name="e", shell="ENTRYPOINT", container=Container(str(image))))
    bench.run(make_step("", name="none", container=Container(str(image))))
    assert bench.read_log("e.out") == "<--lr><0.1><two words>"
    assert bench.read_log("none.out") == "<>"


def test_arguments_with_an_open_quote(bench, image):
    error = fails(bench, make_step("it's", name="e", shell="ENTRYPOINT", container=Container(str(image))))
    assert error.kind == "step_failed"
    assert "cannot be told apart: No closing quotation" in error.detail


def test_home_is_not_there_unless_asked_for(bench, image):
    list_home = 'ls -A "$HOME"'
    bench.run(make_step(list_home, name="no", container=Container(str(image))))
    bench.run(make_step(list_home, name="yes", container=Container(str(image), mount_home=True)))
    home = set(os.listdir(Path("~").expanduser()))
    assert home
    assert set(bench.read_log("yes.out").splitlines()) >= home
    assert not set(bench.read_log("no.out").splitlines()) & home


def test_the_root_is_writable_for_the_step_unless_read_only(bench, image):
    bench.run(make_step("echo x > /new && cat /new", name="rw", container=Container(str(image))))
    assert bench.read_log("rw.out") == "x\n"
    error = fails(bench, make_step("echo x > /new", name="ro", container=Container(str(image), read_only=True)))
    assert error.kind == "step_failed"
    assert "Read-only file system" in error.detail


def test_mounts(bench, image, tmp_path):
    data = tmp_path / "some data"
    data.mkdir()
    (data / "file").write_text("there\n")
    mounts = (Mount(str(data), "/mnt/ro", "ro"), Mount(str(data), "/mnt/rw", "rw"))
    command = "cat /mnt/ro/file; echo new > /mnt/rw/new; echo no > /mnt/ro/no"
    error = fails(bench, make_step(command, name="m", container=Container(str(image), mounts=mounts)))
    assert "Read-only file system" in error.detail
    assert bench.read_log("m.out") == "there\n"
    assert sorted(os.listdir(data)) == ["file", "new"]


def test_secrets_never_stand_on_a_command_line(bench, image):
    token = Secret("token")
    container = Container(str(image), username=token, password=token)
    step = make_step(
        'echo $$; test "$TOKEN" && touch up; until [ -e go ]; do sleep 0.05; done; env',
        name="s",
        container=container,
        env=(EnvVar("TOKEN", token),),
    )
    thread = threading.Thread(target=bench.run, args=(step,))
    thread.start()
    until((bench.sandbox.root / "up").exists)
    lines = command_lines()
    (bench.sandbox.root / "go").touch()
    thread.join()
    assert any(b"busy box.sif" in line for line in lines)
    assert not any(b"s3cr3t-value" in line for line in lines)
    assert "TOKEN=***" in bench.read_log("s.out")
    assert "APPTAINER_DOCKER" not in bench.read_log("s.out")


def until(condition, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def command_lines():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("name", "said"),
    [("/no/such/image.sif", "no such file or directory"), ("docker://127.0.0.1:9/x:y", "connection refused")],
)
def test_an_image_that_cannot_be_had(bench, name, said):
    error = fails(bench, make_step("true", name="c", container=Container(name)))
    assert error.kind == "container_failed"
    assert error.detail.startswith('the container of step "c" did not start: ')
    assert said in error.detail


def test_a_program_that_fails_inside_is_the_steps_failure(bench, image):
    error = fails(bench, make_step("echo my fault >&2; exit 255", name="c", container=Container(str(image))))
    assert error.kind == "step_failed"
    assert error.detail == 'step "c" ended with exit code 255; its last words: my fault'


def test_a_machine_without_apptainer(tmp_path, image):
    bench = StepHarness(tmp_path, host_environment={"PATH": str(tmp_path)})
    error = fails(bench, make_step("true", container=Container(str(image))))
    assert error.kind == "container_failed"
    assert "there is no apptainer on this machine" in error.detail
    bench.close()


def test_a_stop_reaches_the_program_inside(bench, image):
    command = "trap 'echo saved > trace; exit 0' TERM; touch up; while :; do sleep 0.05; done"
    threading.Thread(
        target=lambda: (until((bench.sandbox.root / "up").exists), bench.stop_request.request("terminated", "T"))
    ).start()
    assert fails(bench, make_step(command, name="t", container=Container(str(image)))).kind == "terminated"
    assert bench.read_trace() == ["saved"]


def test_the_agents_zip_is_there_read_only_and_gpus_are_asked_for(bench, image, tmp_path):
    zipped = tmp_path / "agent.pyz"
    zipped.write_text("zip")
    around = ApptainerEnvironment(Container(str(image)), bench.sandbox, 2, zipped, bench.resolve_secret)
    program = around.wrap(StepCommand(("true",), bench.sandbox.root, bench.host_environment, {}))
    assert "--nv" in program.argv
    assert f"type=bind,source={zipped},destination={zipped},ro" in program.argv


@pytest.fixture(scope="module")
def with_modules(tmp_path_factory):
    """An image that has a PYTHONPATH of its own."""
    lines = "export PYTHONPATH=/image/lib"
    return apptainer.build_sif(tmp_path_factory.mktemp("image") / "own.sif", 'printf "<%s>" "$PYTHONPATH"', lines)


def python_path(bench, image, zipped, outside, own, entrypoint=False):
    around = ApptainerEnvironment(Container(str(image)), bench.sandbox, 0, zipped, bench.resolve_secret)
    argv = () if entrypoint else ("/bin/sh", "-c", 'printf "<%s>" "$PYTHONPATH"')
    variables = {**bench.host_environment, **outside, "APPTAINER_NO_EVAL": "1"}
    program = around.wrap(StepCommand(argv, bench.sandbox.root, variables, own, use_entrypoint=entrypoint))
    return subprocess.check_output(program.argv, env=program.env, cwd=program.work_dir, text=True)


@pytest.mark.parametrize("entrypoint", [False, True])
def test_the_agents_modules_come_before_the_images_own(bench, image, with_modules, tmp_path, entrypoint):
    zipped = tmp_path / "agent $HOME.pyz"
    zipped.write_text("zip")
    outside = {"PYTHONPATH": f"{zipped}:/outside"}
    assert python_path(bench, with_modules, zipped, {}, {}, entrypoint) == f"<{zipped}:/image/lib>"
    assert python_path(bench, with_modules, zipped, outside, {}, entrypoint) == f"<{zipped}:/image/lib>"
    if not entrypoint:
        assert python_path(bench, image, zipped, {"PYTHONPATH": str(zipped)}, {}) == f"<{zipped}>"
        assert python_path(bench, image, zipped, outside, {}) == f"<{zipped}:/outside>"
        assert python_path(bench, with_modules, zipped, outside, {"PYTHONPATH": "/step"}) == "</step>"


def test_values_are_what_they_are(bench, image):
    """Apptainer lets a shell read them."""
    nasty = r"""a $HOME `echo no` $(echo no) \ \$b "q" 'r' \" ü"""
    bench.run(
        make_step('printf "%s" "$NASTY"', name="n", container=Container(str(image)), env=make_env_vars(NASTY=nasty))
    )
    assert bench.read_log("n.out") == nasty


# an image from a registry, with a password


class Registry(http.server.BaseHTTPRequestHandler):
    """Just enough of a registry to hold one image, as `apptainer push … oras://` would leave it there."""

    content = None
    authorization = ""

    def do_GET(self):
        self.do_HEAD(body=True)

    def do_HEAD(self, body: bool = False):
        if self.headers.get("Authorization") != self.authorization:
            return self.answer(401, "text/plain", b"", body)
        kind, data = self.content.get(self.path, ("text/plain", b""))
        return self.answer(200 if self.path in self.content else 404, kind, data, body)

    def answer(self, status: int, kind: str, data: bytes, body: bool):
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
    """Its address, and the certificate to trust."""
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


def test_an_image_from_a_registry_with_a_password(bench, registry):
    address, certificate = registry
    trust = make_env_vars(SSL_CERT_FILE=str(certificate))
    good = Container(address, username="me", password=Secret("token"))
    bench.run(make_step("readlink /bin/sh", name="pulled", container=good), env=trust)
    assert bench.read_log("pulled.out") == "busybox\n"
    assert (bench.sandbox.root / ".apptainer").is_dir()


def test_a_registry_that_refuses_the_password(bench, registry):
    address, certificate = registry
    trust = make_env_vars(SSL_CERT_FILE=str(certificate))
    error = fails(
        bench, make_step("true", name="c", container=Container(address, username="me", password="wrong")), env=trust
    )
    assert error.kind == "container_failed"
