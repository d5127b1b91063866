package rekindle;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;

/**
 * The folder of a host's socket: of a random name, and closed to other users.
 *
 * <p>Several executors may have one temporary folder, a hostPath for instance, and in containers of
 * one image their JVMs have the same process id. The path of a Unix socket ends at 107 bytes, so
 * where the temporary folder's own is too long another one is taken.
 */
final class HostFolder {
  static final String SOCKET = "s";

  private static final int PATH_BYTES_MAX = 107;
  private static final int LETTERS = 10;
  private static final String ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789";
  private static final List<String> OTHERS = List.of("/tmp", "/dev/shm", "/var/tmp");

  private HostFolder() {}

  /** Makes one, in the temporary folder if it can be there. */
  static Path make() throws IOException {
    return make(System.getProperty("java.io.tmpdir"), OTHERS);
  }

  static Path make(String temporary, List<String> others) throws IOException {
    List<String> places = new ArrayList<>();
    places.add(temporary);
    places.addAll(others);
    IOException wrong = null;
    for (String place : places) {
      try {
        return makeIn(Path.of(place).toAbsolutePath());
      } catch (IOException unusable) {
        if (wrong == null) wrong = unusable;
        else wrong.addSuppressed(unusable);
      }
    }
    throw new IOException(
        "no folder for the host's socket: " + wrong.getMessage()
            + "; give the executor a java.io.tmpdir with a short path that it may write to",
        wrong);
  }

  private static Path makeIn(Path place) throws IOException {
    while (true) {
      Path folder = place.resolve("rekindle-" + random());
      int bytes = folder.resolve(SOCKET).toString().getBytes(StandardCharsets.UTF_8).length;
      if (bytes > PATH_BYTES_MAX) throw new IOException(place + " has a path that is too long");
      try {
        return Files.createDirectory(
            folder,
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      } catch (FileAlreadyExistsException taken) {
        continue;
      } catch (IOException | UnsupportedOperationException refused) {
        throw new IOException(place + " cannot be written (" + refused + ")", refused);
      }
    }
  }

  private static String random() {
    SecureRandom chance = new SecureRandom();
    StringBuilder name = new StringBuilder();
    for (int i = 0; i < LETTERS; i++) {
      name.append(ALPHABET.charAt(chance.nextInt(ALPHABET.length())));
    }
    return name.toString();
  }
}
