package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"spillway/internal/embed"
	"spillway/internal/testkit/server"
)

// Limits on the installers.
const (
	aptTimeout   = 8 * time.Minute
	mavenTimeout = 5 * time.Minute
	minJava      = 17
)

// needs maps each kind to the Debian packages it lacks on this machine.
func needs(ctx context.Context, kinds []server.Kind) map[server.Kind][]string {
	lacking := make(map[server.Kind][]string)
	for _, kind := range kinds {
		switch kind {
		case server.KindKafka:
			if javaVersion(ctx) < minJava {
				lacking[kind] = append(lacking[kind], "openjdk-17-jre-headless")
			}
			if lib, err := server.KafkaLib(); err != nil || !haveJars(lib) {
				if _, err := exec.LookPath("mvn"); err != nil {
					lacking[kind] = append(lacking[kind], "maven")
				}
			}
		case server.KindRedis:
			if _, err := exec.LookPath("redis-server"); err != nil {
				lacking[kind] = append(lacking[kind], "redis-server")
			}
		case server.KindPostgres:
			if _, err := embed.Find(""); err != nil {
				lacking[kind] = append(lacking[kind], "postgresql")
			}
		}
	}
	return lacking
}

// install brings in what the kinds need, and returns the reason for each kind that must be left out.
func (y yard) install(ctx context.Context, kinds []server.Kind) map[server.Kind]string {
	absent := make(map[server.Kind]string)
	lacking := needs(ctx, kinds)
	var packages []string
	for _, kind := range kinds {
		packages = append(packages, lacking[kind]...)
	}
	if len(packages) > 0 {
		failure := y.aptInstall(ctx, packages)
		for kind, left := range needs(ctx, kinds) {
			if len(left) > 0 {
				absent[kind] = fmt.Sprintf("%s missing: %v", strings.Join(left, " and "), failure)
			}
		}
	}
	for _, kind := range kinds {
		if kind != server.KindKafka || absent[kind] != "" {
			continue
		}
		if err := y.resolveJars(ctx); err != nil {
			absent[kind] = fmt.Sprintf("no jars of Kafka %s: %v", server.KafkaVersion, err)
		}
	}
	return absent
}

// errStillMissing is what is left to say when apt-get was content and a program is missing all the same.
var errStillMissing = errors.New("the package is installed and the program is not on PATH")

// aptInstall installs Debian packages when this is root on a machine with apt-get. Otherwise its error names the
// command to run.
func (y yard) aptInstall(ctx context.Context, packages []string) error {
	byHand := "apt-get install -y --no-install-recommends " + strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New("install it (on Debian: " + byHand + ")")
	}
	if os.Geteuid() != 0 {
		return errors.New("run: sudo " + byHand)
	}
	_, _ = fmt.Fprintln(y.errs, "services: installing "+strings.Join(packages, " "))
	allow, err := denyStarts()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, aptTimeout)
	defer cancel()
	install := append([]string{"install"}, packages...)
	err = apt(ctx, install)
	if err != nil {
		// An image without package lists, or with old ones, needs a fresh look first.
		if err = apt(ctx, []string{"update"}); err == nil {
			err = apt(ctx, install)
		}
	}
	if err = errors.Join(err, allow()); err != nil {
		return fmt.Errorf("%s: %w", byHand, err)
	}
	return errStillMissing
}

// apt runs one apt-get command without questions.
func apt(ctx context.Context, args []string) error {
	options := []string{
		"-qq", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=180", "-o", "Dpkg::Use-Pty=0",
	}
	command := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1")
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(string(output)))
	}
	return nil
}

// denyStarts asks Debian's package scripts, in the way they define (policy-rc.d), not to start a system-wide server
// while we install. The returned function ends that. A policy that somebody else set stays as it is.
func denyStarts() (func() error, error) {
	const policy = "/usr/sbin/policy-rc.d"
	file, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString("#!/bin/sh\nexit 101\n")
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(policy))
	}
	return func() error { return os.Remove(policy) }, nil
}

// javaVersion is the feature release of the java on PATH; 0 when there is none.
func javaVersion(ctx context.Context) int {
	output, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput()
	if err != nil {
		return 0
	}
	match := regexp.MustCompile(`version "(\d+)`).FindSubmatch(output)
	if match == nil {
		return 0
	}
	n, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return 0
	}
	return n
}

// haveJars reports whether the folder holds the broker. It is renamed into place whole, so one jar stands for all.
func haveJars(lib string) bool {
	jars, err := filepath.Glob(filepath.Join(lib, "kafka_2.13-"+server.KafkaVersion+".jar"))
	return err == nil && len(jars) > 0
}

// resolveJars fetches Kafka's jars through Maven into the user's cache, once.
func (y yard) resolveJars(ctx context.Context) error {
	lib, err := server.KafkaLib()
	if err != nil {
		return err
	}
	if haveJars(lib) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(lib), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(lib), "kafka-new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	_, _ = fmt.Fprintln(y.errs, "services: fetching Kafka "+server.KafkaVersion+" through Maven")
	ctx, cancel := context.WithTimeout(ctx, mavenTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "mvn", "-q", "-B", "-Dstyle.color=never", "-f", y.pom,
		"org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies", // the pom names the plugin's version
		"-DoutputDirectory="+fresh, "-DincludeScope=runtime")
	command.WaitDelay = 5 * time.Second
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("mvn: %w: %s", err, firstError(string(output)))
	}
	if !haveJars(fresh) {
		return errors.New("mvn ended well and left no broker jar")
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	if err := os.Rename(fresh, lib); err != nil && !haveJars(lib) { // another working tree may have been faster
		return err
	}
	return nil
}

// firstError picks Maven's first error line, which is the one that says what went wrong.
func firstError(output string) string {
	for line := range strings.Lines(output) {
		if strings.Contains(line, "[ERROR]") {
			_, line, _ = strings.Cut(line, "[ERROR]")
			return withoutHosts(strings.TrimSpace(line))
		}
	}
	return lastLine(output)
}

// lastLine is the last line with something on it.
func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return withoutHosts(strings.TrimSpace(lines[len(lines)-1]))
}

// withoutHosts drops the addresses of hosts from an installer's words: which mirror a machine uses is its owner's affair.
func withoutHosts(text string) string {
	return regexp.MustCompile(`https?://[^\s)]+|\b[\w-]+(\.[\w-]+)*\.(org|com|net|io)\b`).ReplaceAllString(text, "its registry")
}
