/* A long bad line between two network namespaces, through a TUN device in each; for kernels without netem.

     badline NEAR FAR RATE_MBIT ONE_WAY_MS LOSS_PERCENT QUEUE_MS

   Both directions have the rate, the delay and the queue; packets are lost at random from FAR (the server) to NEAR
   (the client) only. Prints "up" once both devices exist, and at SIGTERM one line of counts. */
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
    PLACES = 1 << 15,      /* packets under way in one direction */
    LARGEST_PACKET = 1600, /* the devices' MTU is 1500 */
    BURST = 64,            /* packets read before the other direction has its turn */
};

static const long long MS = 1000000, LONGEST_SLEEP = 2 * 1000000, SHORTEST_SLEEP = 50 * 1000; /* ns */

typedef long long Time; /* ns on the monotonic clock */

typedef struct {
    Time due;
    int length;
    char bytes[LARGEST_PACKET];
} Packet;

typedef struct {
    int from, to;        /* TUN devices */
    double ns_per_byte;  /* the rate */
    Time delay, longest_queue;
    double loss;         /* chance, 0 to 1 */
    Packet *ring;
    unsigned head, tail; /* packets head..tail are under way */
    Time line_free_at;
    unsigned long taken, lost, overflowed;
} Direction;

static volatile sig_atomic_t ended;

static void end(int signal) {
    (void)signal;
    ended = 1;
}

static Time now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 * MS + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* Leaves this process in the namespace, which nothing else here minds. */
static int open_tun(const char *namespace) {
    char path[256];
    snprintf(path, sizeof path, "/var/run/netns/%s", namespace);
    int inside = open(path, O_RDONLY | O_CLOEXEC);
    if (inside < 0 || setns(inside, CLONE_NEWNET)) die(path);
    close(inside);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(request.ifr_name, "wan0");
    if (device < 0 || ioctl(device, TUNSETIFF, &request)) die("/dev/net/tun");
    return device;
}

/* Read what waits at the entry; each packet is lost, refused by the full queue, or gets its time of arrival. */
static void take_in(Direction *d) {
    for (int i = 0; i < BURST; i++) {
        static Packet spare;
        int full = d->tail - d->head >= PLACES;
        Packet *p = full ? &spare : &d->ring[d->tail % PLACES];
        p->length = read(d->from, p->bytes, LARGEST_PACKET);
        if (p->length <= 0) return;
        d->taken++;
        if (d->loss > 0 && drand48() < d->loss) {
            d->lost++;
            continue;
        }
        Time t = now(), begin = d->line_free_at > t ? d->line_free_at : t;
        if (full || begin - t > d->longest_queue) {
            d->overflowed++;
            continue;
        }
        d->line_free_at = begin + (Time)(p->length * d->ns_per_byte);
        p->due = d->line_free_at + d->delay;
        d->tail++;
    }
}

static void hand_out(Direction *d) {
    Time t = now();
    while (d->head != d->tail && d->ring[d->head % PLACES].due <= t) {
        Packet *p = &d->ring[d->head++ % PLACES];
        if (write(d->to, p->bytes, p->length) < 0) d->overflowed++;
    }
}

static Time time_to_next(const Direction *d, Time otherwise) {
    if (d->head == d->tail) return otherwise;
    Time left = d->ring[d->head % PLACES].due - now();
    return left < otherwise ? left : otherwise;
}

static void sleep_until_needed(const Direction *there, const Direction *back) {
    Time left = time_to_next(there, time_to_next(back, LONGEST_SLEEP));
    if (left <= 0) return;
    struct timespec timeout = {0, left < SHORTEST_SLEEP ? SHORTEST_SLEEP : left};
    struct pollfd entries[2] = {{there->from, POLLIN, 0}, {back->from, POLLIN, 0}};
    ppoll(entries, 2, &timeout, NULL);
}

static Direction direction(int from, int to, char **settings, double loss) {
    Direction d = {.from = from, .to = to, .loss = loss};
    d.ns_per_byte = 8000.0 / atof(settings[0]);
    d.delay = atof(settings[1]) * MS;
    d.longest_queue = atof(settings[3]) * MS;
    d.ring = malloc(sizeof(Packet) * PLACES);
    if (!d.ring) die("malloc");
    return d;
}

int main(int count, char **words) {
    if (count != 7) {
        fprintf(stderr, "usage: badline NEAR FAR RATE_MBIT ONE_WAY_MS LOSS_PERCENT QUEUE_MS\n");
        return 2;
    }
    signal(SIGTERM, end);
    srand48(42);
    int near = open_tun(words[1]), far = open_tun(words[2]);
    Direction there = direction(near, far, words + 3, 0);
    Direction back = direction(far, near, words + 3, atof(words[5]) / 100);
    puts("up");
    fflush(stdout);
    while (!ended) {
        take_in(&there);
        take_in(&back);
        hand_out(&there);
        hand_out(&back);
        sleep_until_needed(&there, &back);
    }
    printf("%lu packets to the client, %lu lost, %lu overflowed\n", back.taken, back.lost, back.overflowed);
    return 0;
}
