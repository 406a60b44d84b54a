/* Bytes of requests that neither crash nor hang the server: fuzz targets for the header Range and for
 * multipart bodies, which libmicrohttpd splits. Each runs the corpus and fixed mutations. */
#include "fuzz_corpus.h"

#include "serve/byte_range.h"
#include "serve/serve_request.h"

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* "100 bytes=2-5": bytes of the file, and the header. A part is never empty and is in the file. */
static int fuzz_range(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size), *header = text;
    const int64_t bytes = llabs(strtoll(text, &header, 10));
    int64_t first = -1, count = -1;
    header += *header == ' ';
    switch (weft_byte_range(header, bytes, &first, &count)) {
    case WEFT_RANGE_WHOLE: cr_assert(first == 0 && count == bytes, "%s", text); break;
    case WEFT_RANGE_PART:
        cr_assert(first >= 0 && count > 0 && first < bytes && count <= bytes - first, "%s", text);
        break;
    case WEFT_RANGE_OUTSIDE: break;
    }
    free(text);
    return 0;
}

Test(fuzz_requests, range)
{
    fuzz_corpus_run("range", fuzz_range);
}

/* A request on one end of a pair of sockets. */
typedef struct exchange {
    weft_server server;
    weft_serve_request *request;
    bool ended;          /* libmicrohttpd has forgotten the request */
    int64_t read, files; /* forms whose fields were read; their files */
} exchange;
static int64_t forms, files;

static void read_form(exchange *x)
{
    json_t *fields = NULL;
    if (weft_serve_request_fields(x->request, &fields) == WEFT_OK) {
        cr_assert(json_is_object(fields));
        x->read++;
        for (int i = 0; i < WEFT_INPUTS; i++) {
            char name[WEFT_INPUT_NAME] = "";
            const weft_upload *u = &x->request->uploads[i];
            if (u->file && weft_upload_name(u, (weft_request_input)i, name) == WEFT_OK) {
                cr_assert(!strchr(name, '/'), "%s", name);
                x->files++;
            }
        }
    }
    json_decref(fields);
}

static enum MHD_Result answer(struct MHD_Connection *connection)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    const enum MHD_Result result = MHD_queue_response(connection, 200, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *bytes, void **context)
{
    exchange *x = cls;
    (void)url;
    (void)version;
    if (!*context) {
        *context = x;
        x->request = weft_calloc(1, sizeof *x->request);
        *x->request =
            (weft_serve_request){.server = &x->server, .connection = connection, .method = method};
        return weft_serve_request_begin_body(x->request) ? MHD_YES : MHD_NO;
    }
    if (*bytes) {
        const bool ok = weft_serve_request_receive(x->request, data, *bytes);
        *bytes = 0;
        return ok ? MHD_YES : MHD_NO;
    }
    if (!x->request->too_large)
        read_form(x);
    return answer(connection);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    exchange *x = cls;
    (void)connection;
    (void)context;
    (void)code;
    weft_serve_request_free(x->request);
    x->request = NULL;
    x->ended = true;
}

static void send_all(int fd, const void *bytes, size_t count)
{
    cr_assert_eq(write(fd, bytes, count), (ssize_t)count);
}

/* The first line is the parameter of the Content-Type, the rest is the body. */
static int fuzz_multipart(const uint8_t *data, size_t size)
{
    exchange x = {.server = {.state = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm"}};
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    const size_t length = line ? (size_t)(line - data) : 0, skip = line ? length + 1 : 0;
    char type[64], head[256];
    int fd[2];
    const struct sockaddr_in address = {.sin_family = AF_INET};
    snprintf(type, sizeof type, "%.*s", (int)(length < 60 ? length : 60), (const char *)data);
    for (char *at = type; *at; at++)
        *at = *at < ' ' || *at > '~' ? '_' : *at;
    const int bytes =
        snprintf(head, sizeof head,
                 "POST /v1/videos HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                 "Content-Type: multipart/form-data; %s\r\nContent-Length: %zu\r\n\r\n",
                 type, size - skip);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, on_request, &x,
                         MHD_OPTION_NOTIFY_COMPLETED, on_completed, &x, MHD_OPTION_END);
    cr_assert(daemon);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    cr_assert_eq(
        MHD_add_connection(daemon, fd[0], (const struct sockaddr *)&address, sizeof address),
        MHD_YES);
    send_all(fd[1], head, (size_t)bytes);
    send_all(fd[1], data + skip, size - skip);
    shutdown(fd[1], SHUT_WR);
    for (int i = 0; i < 100 && !x.ended; i++)
        MHD_run(daemon);
    MHD_stop_daemon(daemon); /* closes fd[0], and completes the request */
    close(fd[1]);
    cr_assert(!x.request, "the request was not completed");
    forms += x.read;
    files += x.files;
    return 0;
}

Test(fuzz_requests, multipart)
{
    fuzz_corpus_run("multipart", fuzz_multipart);
    cr_expect_gt(forms, 100, "only %lld forms were read", (long long)forms);
    cr_expect_gt(files, 50, "only %lld files were read", (long long)files);
}
