/* The text of figures for Prometheus, and the thread that serves it. */
#include "base/log.h"
#include "base/memory.h"
#include "format/log/metrics_server.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int port; /* of the last server-ready */

static void on_message(void *user, weft_log_level level, weft_message_class kind,
                       const weft_message_fields *at, const char *text)
{
    (void)user;
    (void)level;
    if (kind == WEFT_MSG_SERVER_READY && at->has_number)
        port = (int)at->number;
    cr_expect(strstr(text, "/metrics"), "%s", text);
}

static weft_metrics_server *start(void)
{
    const weft_log_receiver r = {.message = on_message, .has_message = true};
    weft_metrics_server *server = NULL;
    weft_log_set_receiver(&r);
    cr_assert_eq(weft_metrics_server_open("127.0.0.1:0", &server), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_gt(port, 0);
    return server;
}

static int open_connection(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    cr_assert_eq(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* The reply to `request`. */
static void get(const char *request, char reply[4096])
{
    const int fd = open_connection();
    size_t n = 0;
    cr_assert_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    for (ssize_t got; n < 4095 && (got = read(fd, reply + n, 4095 - n)) > 0;)
        n += (size_t)got;
    reply[n] = 0;
    close(fd);
}

Test(metrics_server, text_has_heads_labels_and_numbers)
{
    weft_buf text = {0};
    weft_metric_text_one(&text, "weft_a", "gauge", "Help.", 0.5);
    weft_metric_text_head(&text, "weft_b_total", "counter", "More.");
    weft_metric_text_value(&text, "weft_b_total", "name", "a\"b\\c\nd", 3);
    weft_metric_text_value(&text, "weft_b_total", "name", "none", 0.0 / 0.0);
    weft_metric_text_value(&text, "weft_b_total", "name", "much", -1 / 0.0);
    cr_assert_str_eq(text.data, "# HELP weft_a Help.\n# TYPE weft_a gauge\nweft_a 0.5\n"
                                "# HELP weft_b_total More.\n# TYPE weft_b_total counter\n"
                                "weft_b_total{name=\"a\\\"b\\\\c\\nd\"} 3\n"
                                "weft_b_total{name=\"none\"} NaN\n"
                                "weft_b_total{name=\"much\"} -Inf\n");
    weft_buf_free(&text);
}

Test(metrics_server, replies_with_the_newest_text)
{
    char reply[4096];
    weft_metrics_server *server = start();
    for (int i = 0; i < 3; i++) {
        weft_buf text = {0};
        cr_expect_eq(weft_metrics_server_is_due(server), i == 0);
        weft_metric_text_one(&text, "weft_a", "gauge", "Help.", i);
        cr_assert_eq(weft_metrics_server_publish(server, &text), WEFT_OK);
        get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", reply);
        const char *body = strstr(reply, "\r\n\r\n");
        cr_assert(body && !strncmp(reply, "HTTP/1.1 200 ", 13), "%s", reply);
        cr_assert_str_eq(body + 4, text.data);
        cr_assert(strstr(reply, "text/plain; version=0.0.4"));
        weft_buf_free(&text);
    }
    get("GET /metrics?x HTTP/1.0\r\n\r\n", reply);
    cr_expect(!strncmp(reply, "HTTP/1.1 200 ", 13), "%s", reply);
    get("GET /metricsx HTTP/1.1\r\n\r\n", reply);
    cr_expect(!strncmp(reply, "HTTP/1.1 404 ", 13), "%s", reply);
    get("POST /metrics HTTP/1.1\r\n\r\n", reply);
    cr_expect(!strncmp(reply, "HTTP/1.1 405 ", 13), "%s", reply);
    close(open_connection()); /* a client that leaves */
    get("GET /metrics HTTP/1.1\r\n\r\n", reply);
    cr_expect(!strncmp(reply, "HTTP/1.1 200 ", 13), "%s", reply);
    weft_metrics_server_close(server);
}

Test(metrics_server, addresses_are_checked)
{
    char taken[32];
    weft_metrics_server *first = start(), *second = NULL;
    snprintf(taken, sizeof taken, "127.0.0.1:%d", port);
    cr_expect_eq(weft_metrics_server_open(taken, &second), WEFT_E_IO);
    cr_expect_eq(weft_error_class(), WEFT_MSG_SERVER_LISTEN);
    static const char *const wrong[] = {"9464", "localhost:1", "127.0.0.1:70000", "::1:80", ":1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_eq(weft_metrics_server_open(wrong[i], &second), WEFT_E_ARG, "%s", wrong[i]);
        cr_expect_eq(weft_error_class(), WEFT_MSG_OPTION_INVALID);
    }
    cr_expect_null(second);
    weft_metrics_server_close(first);
    weft_metrics_server_close(NULL);
}
