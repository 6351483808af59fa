/* Emulate a wide-area link between two network namespaces with a TUN device in each; for kernels without netem.

     wan_emulator CLIENT SERVER RATE_MBIT ONE_WAY_MS LOSS_PERCENT QUEUE_MS

   Both directions have the given rate, delay and queue. Packets are lost at random only from SERVER to CLIENT. Prints
   "up" once both devices exist, and one line of counts on SIGTERM. The arguments name network namespaces. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    RING_SIZE = 1 << 15,     /* packets in flight in one direction */
    MAX_PACKET_BYTES = 1600, /* the MTU of the devices is 1500 */
    MAX_BURST = 64,          /* packets read before the other direction is served */
};

static const long long MS = 1000000, MAX_SLEEP = 2 * 1000000, MIN_SLEEP = 50 * 1000; /* ns */

typedef long long Time; /* ns on the monotonic clock */

typedef struct {
    Time due;
    int length;
    char bytes[MAX_PACKET_BYTES];
} Packet;

typedef struct {
    int from, to;        /* TUN devices */
    double ns_per_byte;  /* the rate */
    Time delay, max_queue;
    double loss;         /* probability, 0 to 1 */
    Packet *ring;
    unsigned head, tail; /* packets head..tail are in flight */
    Time line_free_at;
    unsigned long received, lost, overflowed;
} Direction;

static volatile sig_atomic_t stopped;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static Time now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 * MS + t.tv_nsec;
}

static void die(const char *message) {
    perror(message);
    exit(1);
}

/* Open a TUN device in a namespace. This process remains in that namespace. */
static int open_tun(const char *namespace) {
    char path[256];
    snprintf(path, sizeof path, "/var/run/netns/%s", namespace);
    int netns = open(path, O_RDONLY | O_CLOEXEC);
    if (netns < 0 || setns(netns, CLONE_NEWNET)) die(path);
    close(netns);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(request.ifr_name, "wan0");
    if (device < 0 || ioctl(device, TUNSETIFF, &request)) die("/dev/net/tun");
    return device;
}

/* Read the waiting packets. Each one is lost, dropped by the full queue, or gets its time of arrival. */
static void receive_packets(Direction *d) {
    for (int i = 0; i < MAX_BURST; i++) {
        static Packet spare;
        int full = d->tail - d->head >= RING_SIZE;
        Packet *p = full ? &spare : &d->ring[d->tail % RING_SIZE];
        p->length = read(d->from, p->bytes, MAX_PACKET_BYTES);
        if (p->length <= 0) return;
        d->received++;
        if (d->loss > 0 && drand48() < d->loss) {
            d->lost++;
            continue;
        }
        Time t = now(), begin = d->line_free_at > t ? d->line_free_at : t;
        if (full || begin - t > d->max_queue) {
            d->overflowed++;
            continue;
        }
        d->line_free_at = begin + (Time)(p->length * d->ns_per_byte);
        p->due = d->line_free_at + d->delay;
        d->tail++;
    }
}

static void deliver_packets(Direction *d) {
    Time t = now();
    while (d->head != d->tail && d->ring[d->head % RING_SIZE].due <= t) {
        Packet *p = &d->ring[d->head++ % RING_SIZE];
        if (write(d->to, p->bytes, p->length) < 0) d->overflowed++;
    }
}

static Time time_to_next(const Direction *d, Time default_time) {
    if (d->head == d->tail) return default_time;
    Time remaining = d->ring[d->head % RING_SIZE].due - now();
    return remaining < default_time ? remaining : default_time;
}

static void sleep_until_due(const Direction *upload, const Direction *download) {
    Time remaining = time_to_next(upload, time_to_next(download, MAX_SLEEP));
    if (remaining <= 0) return;
    struct timespec timeout = {0, remaining < MIN_SLEEP ? MIN_SLEEP : remaining};
    struct pollfd devices[2] = {{upload->from, POLLIN, 0}, {download->from, POLLIN, 0}};
    ppoll(devices, 2, &timeout, NULL);
}

static Direction make_direction(int from, int to, char **settings, double loss) {
    Direction d = {.from = from, .to = to, .loss = loss};
    d.ns_per_byte = 8000.0 / atof(settings[0]);
    d.delay = atof(settings[1]) * MS;
    d.max_queue = atof(settings[3]) * MS;
    d.ring = malloc(sizeof(Packet) * RING_SIZE);
    if (!d.ring) die("malloc");
    return d;
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: wan_emulator CLIENT SERVER RATE_MBIT ONE_WAY_MS LOSS_PERCENT QUEUE_MS\n");
        return 2;
    }
    signal(SIGTERM, stop);
    srand48(42);
    int client = open_tun(argv[1]), server = open_tun(argv[2]);
    Direction upload = make_direction(client, server, argv + 3, 0);
    Direction download = make_direction(server, client, argv + 3, atof(argv[5]) / 100);
    puts("up");
    fflush(stdout);
    while (!stopped) {
        receive_packets(&upload);
        receive_packets(&download);
        deliver_packets(&upload);
        deliver_packets(&download);
        sleep_until_due(&upload, &download);
    }
    printf("%lu packets to the client, %lu lost, %lu overflowed\n", download.received, download.lost, download.overflowed);
    return 0;
}
