/* SPDX-License-Identifier: MIT
 *
 * The only file that uses the JSON library, Jansson, which builds and prints the tree of values.
 * This file remembers the current position in the tree.
 */
#include "base/base.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH_MAX 16
#define READ_MAX (64 << 20)
#define KEY_MAX 64

struct vb_json {
    json_t *root;
    json_t *open[DEPTH_MAX]; /* objects and arrays that are not closed yet, borrowed from root */
    int depth;
    bool failed;
};

struct vb_json *vb_json_create(void)
{
    return calloc(1, sizeof(struct vb_json));
}

void vb_json_destroy(struct vb_json *json)
{
    if (json == NULL)
        return;
    json_decref(json->root);
    free(json);
}

/* Adds a value at the current position. Takes over the caller's reference, also on failure. */
static void place(struct vb_json *json, const char *key, json_t *value)
{
    json_t *parent;

    if (json == NULL || json->failed) {
        json_decref(value);
        return;
    }
    parent = json->depth > 0 ? json->open[json->depth - 1] : NULL;
    if (json_is_object(parent) && key != NULL) {
        json->failed = json_object_set_new(parent, key, value) != 0;
    } else if (json_is_array(parent) && key == NULL) {
        json->failed = json_array_append_new(parent, value) != 0;
    } else if (parent == NULL && json->root == NULL && value != NULL) {
        json->root = value;
    } else {
        json_decref(value);
        json->failed = true;
    }
}

/* Adds an object or array and makes it the current position. */
static void enter(struct vb_json *json, const char *key, json_t *value)
{
    if (json != NULL && json->depth == DEPTH_MAX)
        json->failed = true;
    place(json, key, value);
    if (json != NULL && !json->failed)
        json->open[json->depth++] = value;
}

void vb_json_object(struct vb_json *json, const char *key)
{
    enter(json, key, json_object());
}

void vb_json_array(struct vb_json *json, const char *key)
{
    enter(json, key, json_array());
}

void vb_json_end(struct vb_json *json)
{
    if (json == NULL || json->failed)
        return;
    if (json->depth == 0)
        json->failed = true;
    else
        json->depth--;
}

void vb_json_int(struct vb_json *json, const char *key, int64_t value)
{
    place(json, key, json_integer(value));
}

void vb_json_real(struct vb_json *json, const char *key, double value)
{
    place(json, key, isfinite(value) ? json_real(value) : json_null());
}

void vb_json_bool(struct vb_json *json, const char *key, bool value)
{
    place(json, key, json_boolean(value));
}

/* JSON must be UTF-8, names from the system need not be: bytes that are not ASCII become '?'. */
static json_t *plain_text(const char *text)
{
    char *copy = strdup(text), *c;
    json_t *value;

    if (copy == NULL)
        return NULL;
    for (c = copy; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    value = json_string(copy);
    free(copy);
    return value;
}

void vb_json_text(struct vb_json *json, const char *key, const char *text)
{
    json_t *value = text != NULL ? json_string(text) : json_null();

    if (value == NULL && text != NULL)
        value = plain_text(text);
    place(json, key, value);
}

vb_status vb_json_print(const struct vb_json *json, FILE *out)
{
    size_t flags = JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);

    if (json == NULL || json->root == NULL || json->failed || json->depth != 0)
        return vb_err(VB_ERR_NO_MEMORY, "cannot build the JSON output");
    if (json_dumpf(json->root, out, flags) != 0 || fputc('\n', out) == EOF || fflush(out) != 0)
        return vb_err_sys("cannot write the JSON output");
    return VB_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct vb_json *vb_json_read(const char *path)
{
    struct vb_json *json = vb_json_create();
    struct stat info;
    json_error_t error;

    if (json == NULL || stat(path, &info) != 0) {
        vb_err_sys("cannot read %s", path);
        goto failed;
    }
    if (!S_ISREG(info.st_mode) || info.st_size > READ_MAX) {
        vb_err(VB_ERR_INPUT, "cannot read %s: it is not a file, or has more than %d MB", path,
               READ_MAX >> 20);
        goto failed;
    }
    json->root = json_load_file(path, 0, &error);
    if (json->root != NULL)
        return json;
    vb_err(VB_ERR_INPUT, "%s: line %d, byte %d: %s", path, error.line, error.position, error.text);
failed:
    vb_json_destroy(json);
    return NULL;
}

struct vb_json *vb_json_parse(const char *text, size_t len)
{
    struct vb_json *json = vb_json_create();

    if (json != NULL)
        json->root = json_loadb(text, len, 0, NULL);
    if (json != NULL && json->root != NULL)
        return json;
    vb_json_destroy(json);
    return NULL;
}

/* Returns the value at keys, borrowed, or NULL. */
static json_t *find(const struct vb_json *json, const char *keys)
{
    json_t *value = json != NULL ? json->root : NULL;
    char key[KEY_MAX], *end;
    size_t len, at;

    for (; value != NULL && *keys != '\0'; keys += len + (keys[len] == '.')) {
        len = strcspn(keys, ".");
        if (len >= sizeof(key))
            return NULL;
        memcpy(key, keys, len);
        key[len] = '\0';
        at = strtoul(key, &end, 10);
        value = json_is_array(value) ? (*end == '\0' ? json_array_get(value, at) : NULL)
                                     : json_object_get(value, key);
    }
    return value;
}

const char *vb_json_get_text(const struct vb_json *json, const char *keys)
{
    return json_string_value(find(json, keys));
}

double vb_json_get_real(const struct vb_json *json, const char *keys)
{
    const json_t *value = find(json, keys);

    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

int vb_json_get_count(const struct vb_json *json, const char *keys)
{
    const json_t *value = find(json, keys);

    return json_is_array(value) ? (int)json_array_size(value) : -1;
}

bool vb_json_copy(struct vb_json *json, const char *key, const struct vb_json *from,
                  const char *keys)
{
    json_t *value = find(from, keys);

    if (value != NULL)
        place(json, key, json_incref(value)); /* values that are placed are never changed */
    return value != NULL;
}

void vb_json_copy_all(struct vb_json *json, const struct vb_json *from, const char *except)
{
    const char *key;
    json_t *value;

    if (from == NULL || !json_is_object(from->root))
        return;
    json_object_foreach(from->root, key, value)
    {
        if (strcmp(key, except) != 0)
            place(json, key, json_incref(value)); /* values that are placed are never changed */
    }
}

void vb_json_set_text(struct vb_json *json, const char *object, const char *key, const char *text)
{
    json_t *parent = find(json, object), *value = json_string(text);

    if (value == NULL)
        value = plain_text(text);
    if (!json_is_object(parent) || json_object_set_new(parent, key, value) != 0)
        json->failed = true;
}

const char *vb_json_library(void)
{
    return "Jansson " JANSSON_VERSION;
}
